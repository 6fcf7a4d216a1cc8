"""dissatisfied_follow_up: did the user come back dissatisfied.

Measures: what the user's next message says of the agent's work. A judge gives each message after
the agent acted one label of eight; corrects, reports_failure, reverts and complains are
dissatisfied. The label is about the turn before, or about an earlier one, where it criticizes and
names a file edited there.

Formula, per turn that the agent acted in: − the judge's probability of dissatisfied; of several
messages about one turn the worst counts; −1 where the user stopped the session or the agent and
said nothing more. A session is the mean of its turns.

Range: −1 to 0.

pending: never. censored: `silence`, nobody has answered: most who are content say nothing, and so
do most who are not; `budget`, `unreachable`, `unreadable_answer`, the judge said nothing. Turns in
which the agent did nothing have no row.

To game it: flatter, promise, or ask, so that the next message is an answer: read it beside
`asked_instead`. The judge is a small model trained on written examples, and on wording that it has
not seen it is right about dissatisfaction in seven cases of ten: it tells checkpoints apart by
many sessions, not sessions by one message.
"""

from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.followups.follow_ups import score_follow_ups
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.reward import Reward


@cache
def _judge() -> LocalJudge:
    return LocalJudge()


def _version() -> str:
    return _judge().version


@dataclass(frozen=True)
class LocalJudgeParameters:
    """`judge` is the version of the local judge: it is part of what a definition computes."""

    judge: str = field(default_factory=_version)

    def __post_init__(self) -> None:
        if self.judge != _version():
            raise ValueError(f"the local judge has version {_version()}, not {self.judge}")


def dissatisfied_follow_up(bucket: Bucket, _parameters: LocalJudgeParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_follow_ups("dissatisfied_follow_up", bucket, _judge())


REWARD = Reward("dissatisfied_follow_up", 1, dissatisfied_follow_up, LocalJudgeParameters)
