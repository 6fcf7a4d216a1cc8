"""Point the channel at the checkpoint, or try it on a part of the traffic. Through the gate once
more, and only where the channel is still at the parent."""

from penstock.channels.change import Change
from penstock.channels.channel import channel_state, policy_of
from penstock.channels.errors import AlreadyServing, ChannelPinned, PromotionConflict
from penstock.channels.history import channel_changes
from penstock.channels.promotion import Promotion, promote
from penstock.checkpoints.errors import StateRefused
from penstock.errors import InvalidInput
from penstock.gate.errors import GateRefused
from penstock.gate.policy import CanarySteps, parse
from penstock_jobs.canary.step import gate as judge_of
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.stage import Answer, Done, Facts, NotYet, Over, Work

NAME = "promote"
_REFUSALS = (AlreadyServing, ChannelPinned, GateRefused, PromotionConflict, StateRefused)


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    said = work.results["gate"]
    return {
        "checkpoint": work.results["register"]["checkpoint"],
        "parent": work.parent,
        "verdict": said["verdict"],
        "channel_version": said["channel_version"],
        "share": _share(work),
    }


def run(work: Work, inputs: Facts) -> Answer:
    database, channel = work.lake.database, work.loop.channel
    if (made := made_before(work, inputs["channel_version"])) is not None:
        return _done(made)
    present = channel_state(database, work.tenant, channel)
    if present.canary is not None:
        return Over("refused", f"the canary {present.canary} is tried on {channel}")
    share = inputs["share"]
    wanted = Promotion(
        tenant=work.tenant,
        channel=channel,
        checkpoint=inputs["checkpoint"],
        reason=f"cycle {work.cycle.number} of the loop {work.loop.name}",
        actor=work.actor,
        expect=inputs["parent"],
        expect_version=present.version,
        share=share,
    )
    try:
        return _done(promote(database, wanted, judge_of(database, work.tenant, share is None)))
    except _REFUSALS as error:
        # A runner that had this stage before may have been faster by now.
        if (made := made_before(work, inputs["channel_version"])) is not None:
            return _done(made)
        why = " ".join(str(error).split())
        state = channel_state(database, work.tenant, channel)
        same = (state.checkpoint, state.canary) == (inputs["parent"], None)
        if isinstance(error, PromotionConflict) and same:
            return NotYet(why)  # its policy was changed, or the like
        return Over("refused", why)


def made_before(work: Work, version: int) -> Change | None:
    """The change that a try before this one made, whatever became of it since."""
    history = channel_changes(work.lake.database, work.tenant, work.loop.channel, after=version)
    for one in history:
        if one.action in ("promote", "canary") and work.candidate in (one.checkpoint, one.canary):
            return one
    return None


def _done(change: Change) -> Done:
    part = "" if change.canary is None else f", as a canary on {change.canary_share:g}"
    told = f"{change.channel} version {change.version}{part}"
    return Done({"version": change.version, "verdict": change.verdict}, told=told)


def _share(work: Work) -> float | None:
    """Of a canary's first step."""
    if work.loop.canary is None:
        return None
    if work.loop.canary.share is not None:
        return work.loop.canary.share
    state = channel_state(work.lake.database, work.tenant, work.loop.channel)
    text = policy_of(work.lake.database, state)
    if text is None:
        raise InvalidInput(what="[canary] without a share", why="the channel has no policy")
    return (parse(text, f"the policy of {work.loop.channel}").canary or CanarySteps()).steps[0]
