"""Ask the gate. Only PASS goes on; all else leaves the channel alone, and says why."""

from penstock.channels.channel import channel_state
from penstock.channels.judgement import judge
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.policies import apply_policy
from penstock_jobs.loop.stage import Answer, Done, Facts, Over, Work

NAME = "gate"


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    apply_policy(work)
    state = channel_state(work.lake.database, work.tenant, work.loop.channel)
    return {
        "checkpoint": work.results["register"]["checkpoint"],
        "parent": work.parent,
        "policy": state.policy,
        "attempts": work.results["bench"]["attempts"],
        "full": work.loop.canary is None,
    }


def run(work: Work, inputs: Facts) -> Answer:
    database, channel = work.lake.database, work.loop.channel
    version = channel_state(database, work.tenant, channel).version
    said = judge(database, work.tenant, channel, inputs["checkpoint"], full=inputs["full"])
    reasons = [str(one) for one in said.document.get("why", [])]
    result = {
        "outcome": said.outcome,
        "verdict": said.id,
        "why": reasons,
        "document": said.document,
        "channel_version": version,
    }
    if said.outcome == "PASS":
        return Done(result, told=f"PASS, {said.id}")
    told = f"the gate says {said.outcome} of {said.checkpoint}: {'; '.join(reasons)}"
    # Evidence that cannot be judged says nothing about the checkpoint: somebody has to look at it.
    return Over("failed" if said.outcome == "ERROR" else "refused", told, result)
