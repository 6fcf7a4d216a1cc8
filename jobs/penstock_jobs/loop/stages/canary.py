"""Give the canary more traffic, step by step, until it has all, or was taken back."""

from penstock.channels.errors import ChannelPinned, PromotionConflict
from penstock.channels.rollback import Rollback, roll_back
from penstock.checkpoints.errors import StateRefused
from penstock.gate.errors import GateRefused
from penstock_jobs.canary.settings import CanarySettings
from penstock_jobs.canary.watch import WatchRound, step_once
from penstock_jobs.loop.keeping import database_now
from penstock_jobs.loop.live import look, state_of, why_gone
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.stage import Answer, Done, Facts, NotYet, Over, Work

NAME = "canary"
_SECOND_US = 1_000_000
_NOT_NOW = (ChannelPinned, GateRefused, PromotionConflict, StateRefused)


def wanted(loop: LoopFile) -> bool:
    return loop.canary is not None


def inputs(work: Work) -> Facts:
    return {
        "checkpoint": work.candidate,
        "parent": work.parent,
        "version": work.results["promote"]["version"],
    }


def run(work: Work, inputs: Facts) -> Answer:
    if (ended := _ended(work, inputs)) is not None:
        return ended
    found = _round(work)
    if (ended := _ended(work, inputs)) is not None:
        return ended
    if _too_long(work):
        return _take_back(work, inputs, found.why)
    return NotYet(found.why, work.lake.settings.room(CanarySettings).canary_look_seconds)


def _ended(work: Work, inputs: Facts) -> Answer | None:
    state = state_of(work)
    if state.checkpoint == work.candidate:
        return Done({"version": state.version}, told=f"{work.candidate} has all traffic")
    if state.canary == work.candidate:
        return None
    return Over("rolled_back", why_gone(work, inputs["version"]))


def _round(work: Work) -> WatchRound:
    found = look(work)
    if found.did != "looked":
        return found
    try:
        return step_once(work.lake, work.tenant, work.loop.channel, actor=work.actor)
    except _NOT_NOW as error:
        return WatchRound("refused", " ".join(str(error).split()))


def _too_long(work: Work) -> bool:
    limit_s = work.loop.canary.limit_s if work.loop.canary is not None else None
    began = work.cycle.stage(NAME).started_at or work.held.at
    if limit_s is None:
        return False
    return database_now(work.lake.database) >= began + limit_s * _SECOND_US


def _take_back(work: Work, inputs: Facts, why: str) -> Answer:
    wanted = Rollback(
        tenant=work.tenant,
        channel=work.loop.channel,
        reason=f"the canary {work.candidate} was not decided in time: {why}"[:1_000],
        actor=work.actor,
        expect_version=state_of(work).version,
    )
    try:
        roll_back(work.lake.database, wanted)
    except PromotionConflict as error:
        return NotYet(" ".join(str(error).split()))
    return _ended(work, inputs) or NotYet(why)
