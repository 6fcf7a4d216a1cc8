"""The rewards of follow-ups: did the user come back dissatisfied, by the local judge and by a
language model."""

from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.errors import JudgeUnfit
from penstock_jobs.rewards.followups.follow_ups import score_follow_ups
from penstock_jobs.rewards.followups.judge import Unjudged
from penstock_jobs.rewards.followups.llm_judge import judge_version, prompt_version
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.texts.trail import SECOND

#: Reasons that say nothing about the message: a later run may know more. Only after a while, since
#: a run that cannot ask either computes these sessions for nothing.
_ASK_AGAIN: tuple[Unjudged, ...] = ("budget", "unreachable")
_AGAIN_US = 3_600 * SECOND

_local_judge = cache(LocalJudge)


@dataclass(frozen=True)
class LocalJudgeParameters:
    """`judge` is the version of the local judge: it is part of what a definition computes."""

    judge: str = field(default_factory=lambda: _local_judge().version)

    def __post_init__(self) -> None:
        if self.judge != (version := _local_judge().version):
            raise ValueError(f"the local judge has version {version}, not {self.judge}")


def dissatisfied_follow_up(bucket: Bucket, _parameters: LocalJudgeParameters) -> pa.Table:
    """dissatisfied_follow_up: did the user come back dissatisfied.

    Measures: what the user's next message says of the agent's work. A judge gives each message
    after the agent acted one label of eight; corrects, reports_failure, reverts and complains are
    dissatisfied. The label is about the turn before, or, if it criticizes and names a file, about
    the earlier turn that edited that file.

    Formula, per turn that the agent acted in: − the judge's probability of dissatisfied; of several
    messages about one turn the worst counts; −1 where the user stopped the session or the agent and
    said nothing more. A session is the mean of its turns.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered: most who are content say nothing, and
    so do most who are not; `budget`, `unreachable`, `unreadable_answer`, the judge said nothing.
    Turns in which the agent did nothing have no row.
    To game it: flatter, promise, or ask, so that the next message is an answer: read it beside
    `asked_instead`. The judge is a small model trained on written examples, and right about
    dissatisfaction in seven of ten messages in new wording: it tells checkpoints apart by many
    sessions, not sessions by one message.
    """
    return score_follow_ups("dissatisfied_follow_up", bucket, _local_judge())


@dataclass(frozen=True)
class LlmJudgeParameters:
    """The facts that the answers depend on, and so part of what a definition computes: the model,
    which has to be named; the version of the prompt; how many characters of a message the model
    is shown."""

    model: str = ""
    prompt: str = field(default_factory=prompt_version)
    message_chars_max: int = RewardSettings.judge_message_chars_max

    def __post_init__(self) -> None:
        if self.prompt != prompt_version():
            raise ValueError(f"the prompt has version {prompt_version()}, not {self.prompt}")

    def unfit(self, why: str) -> JudgeUnfit:
        model, chars = self.model or "NAME", self.message_chars_max
        return JudgeUnfit(reward="dissatisfied_by_llm", why=why, model=model, chars=chars)

    def check(self, settings: Settings) -> None:
        judge = settings.room(RewardSettings)
        if not self.model:
            raise self.unfit("its definition names no model: parameters = { model = … }")
        if not judge.judge_url:
            raise self.unfit("no judge is set")
        if judge.judge_model != self.model:
            raise self.unfit(f"the judge is the model {judge.judge_model}")
        if judge.judge_message_chars_max != self.message_chars_max:
            shown = judge.judge_message_chars_max
            raise self.unfit(f"the judge is shown {shown} characters of a message")


def dissatisfied_by_llm(bucket: Bucket, parameters: LlmJudgeParameters) -> pa.Table:
    """dissatisfied_by_llm: did the user come back dissatisfied, as a language model sees it.

    Measures: what `dissatisfied_follow_up` measures, of the same turns and by the same labels, by
    the model behind PENSTOCK_JUDGE_URL. It is computed only where a definition names it, since it
    costs money and sends what users wrote to whoever runs that model.

    Formula, per turn that the agent acted in: as dissatisfied_follow_up, with the probability that
    the model names.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered; `no_train`, the session's messages are
    never sent; `budget`, the run had no requests or tokens left; `unreachable`, the model could not
    be asked, or refused; `unreadable_answer`. After `budget` and `unreachable` a run an hour later
    or more asks again. Turns in which the agent did nothing have no row.
    To game it: as dissatisfied_follow_up; and users can say outright how they want to be labelled:
    the prompt tells the model not to listen, but no prompt is proof against everything. What stands
    behind a model's name may change: compare it with `dissatisfied_follow_up` beside it.
    """
    judge = bucket.llm_judge
    if judge is None:
        raise parameters.unfit("no judge is set")
    if judge.version != judge_version(parameters.model, parameters.message_chars_max):
        raise parameters.unfit("another model is set, or it is asked in another way")
    refused = bucket.turns.filter(pc.equal(bucket.turns["consent"], "no_train"))
    no_train = set(refused["session_id"].to_pylist())
    rows = score_follow_ups("dissatisfied_by_llm", bucket, judge, no_train)
    missed = pc.is_in(rows["reason"], pa.array(_ASK_AGAIN))
    due_us = pc.if_else(missed, bucket.as_of_us + _AGAIN_US, pa.scalar(None, pa.int64()))
    at = rows.column_names.index("due_us")
    return rows.set_column(at, rows.schema.field("due_us"), due_us)


REWARDS = (
    Reward("dissatisfied_follow_up", 1, dissatisfied_follow_up, LocalJudgeParameters),
    Reward(
        "dissatisfied_by_llm", 1, dissatisfied_by_llm, LlmJudgeParameters, LlmJudgeParameters.check
    ),
)
