"""What can be asked of canaries."""

from typing import Any

import msgspec

from penstock.channels.calls import ChannelQuestion
from penstock.checkpoints.calls import refused_for
from penstock.lake.desk import Call, Caller
from penstock.lake.lake import Lake
from penstock.terminal.output import time_of
from penstock_jobs.canary.trial import Trial


class TrialAnswer(msgspec.Struct, kw_only=True):
    """`kind` is `canary` while both serve, and `watch` after a promotion. `step_since` is when the
    share became what it is, `until` when the watch ends."""

    kind: str
    candidate: str
    incumbent: str
    share: float | None
    since_version: int
    since: str
    step_since: str
    until: str | None


class CanaryAnswer(msgspec.Struct):
    """`look` is the newest look at the trial as it was stored."""

    channel: str
    trial: TrialAnswer | None
    look: dict[str, Any] | None
    looked_at: str | None


def trial_answer(trial: Trial) -> TrialAnswer:
    return TrialAnswer(
        kind=trial.kind,
        candidate=trial.candidate,
        incumbent=trial.incumbent,
        share=trial.share,
        since_version=trial.since_version,
        since=_moment(trial.since_us),
        step_since=_moment(trial.step_us),
        until=_moment(trial.until_us) if trial.until_us is not None else None,
    )


def _moment(us: int) -> str:
    return time_of(us).isoformat()


def _show(lake: Lake, caller: Caller, question: ChannelQuestion) -> CanaryAnswer:
    from penstock_jobs.canary.look import newest_look, situation_of

    trial = situation_of(lake, caller.tenant, question.name).trial
    look = newest_look(lake.database, trial) if trial is not None else None
    return CanaryAnswer(
        channel=question.name,
        trial=trial_answer(trial) if trial is not None else None,
        look=look.document if look is not None else None,
        looked_at=_moment(look.at) if look is not None else None,
    )


SHOW_CANARY = Call(
    path="/v1/channels/{name}/canary",
    question=ChannelQuestion,
    answer=CanaryAnswer,
    work=_show,
    roles=("read", "promote"),
    summary="The trial of a channel, and the newest look at it",
    description="A canary that has a part of the traffic, or a new checkpoint that is watched.",
    refused=refused_for(404) | {500: "The history is not there as it was written."},
)
CALLS = [SHOW_CANARY]
