"""dissatisfied_by_llm: did the user come back dissatisfied, as a language model sees it.

Measures: what `dissatisfied_follow_up` measures, of the same turns and by the same labels. The
judge is the model behind PENSTOCK_JUDGE_URL. It is computed only where a definition names it,
since it costs money and sends what users wrote to whoever runs that model.

Formula, per turn that the agent acted in: − the judge's probability of dissatisfied; of several
messages about one turn the worst counts; −1 where the user stopped the session or the agent and
said nothing more. A session is the mean of its turns.

Range: −1 to 0.

pending: never. censored: `silence`, nobody has answered; `no_train`, the session's messages are
never sent; `budget`, the run had no requests or tokens left; `unreachable`, the model could not be
asked, or refused; `unreadable_answer`, it said something else than was asked for. After `budget`
and `unreachable` a run an hour later or more asks again. Turns in which the agent did nothing have
no row.

To game it: flatter, promise, or ask, so that the next message is an answer: read it beside
`asked_instead`. Users can say outright how they want to be labelled; the prompt tells the model
not to listen, and no prompt is proof against everything. Models differ, and the name of one may
stay while what stands behind it changes: compare it with `dissatisfied_follow_up` beside it.
"""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.errors import JudgeUnfit
from penstock_jobs.rewards.followups.follow_ups import score_follow_ups
from penstock_jobs.rewards.followups.judge import Unjudged
from penstock_jobs.rewards.followups.llm_judge import prompt_version, version_of
from penstock_jobs.rewards.followups.llm_requests import Endpoint
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.texts.trail import SECOND

_NAME = "dissatisfied_by_llm"
#: What says nothing about the message, and so need not be the last word. Only after a while: a run
#: that cannot ask either computes these sessions for nothing.
_ANOTHER_TIME: tuple[Unjudged, ...] = ("budget", "unreachable")
_AGAIN_US = 3_600 * SECOND


@dataclass(frozen=True)
class LlmJudgeParameters:
    """What the answers depend on, and so part of what a definition computes: the model, which has
    to be named; the version of the prompt; the characters of a message that the model is shown."""

    model: str = ""
    prompt: str = field(default_factory=prompt_version)
    message_chars_max: int = RewardSettings.judge_message_chars_max

    def __post_init__(self) -> None:
        if self.prompt != prompt_version():
            raise ValueError(f"the prompt has version {prompt_version()}, not {self.prompt}")


def dissatisfied_by_llm(bucket: Bucket, parameters: LlmJudgeParameters) -> pa.Table:
    """The rows of this reward: module docstring. Raises JudgeUnfit."""
    judge = bucket.llm_judge
    if judge is None:
        raise _unfit(parameters, "no judge is set")
    wanted = Endpoint(url="", model=parameters.model)
    if judge.version != version_of(wanted, parameters.message_chars_max):
        raise _unfit(parameters, "another model is set, or it is asked in another way")
    refused = bucket.turns.filter(pc.equal(bucket.turns["consent"], "no_train"))
    rows = score_follow_ups(_NAME, bucket, judge, set(refused["session_id"].to_pylist()))
    return _due_again(rows, bucket.as_of_us)


def _due_again(rows: pa.Table, as_of_us: int) -> pa.Table:
    """With the moment from which a run asks for what another could not."""
    missed = pc.is_in(rows["reason"], pa.array(_ANOTHER_TIME))
    due_us = pc.if_else(missed, as_of_us + _AGAIN_US, pa.scalar(None, pa.int64()))
    at = rows.column_names.index("due_us")
    return rows.set_column(at, rows.schema.field("due_us"), due_us)


def _check(parameters: LlmJudgeParameters, settings: Settings) -> None:
    if not parameters.model:
        raise _unfit(parameters, "its definition names no model: parameters = { model = … }")
    if not settings.room(RewardSettings).judge_url:
        raise _unfit(parameters, "no judge is set")
    if settings.room(RewardSettings).judge_model != parameters.model:
        raise _unfit(
            parameters, f"the judge is the model {settings.room(RewardSettings).judge_model}"
        )
    if settings.room(RewardSettings).judge_message_chars_max != parameters.message_chars_max:
        shown = settings.room(RewardSettings).judge_message_chars_max
        raise _unfit(parameters, f"the judge is shown {shown} characters of a message")


def _unfit(parameters: LlmJudgeParameters, why: str) -> JudgeUnfit:
    return JudgeUnfit(
        reward=_NAME,
        why=why,
        model=parameters.model or "NAME",
        chars=parameters.message_chars_max,
    )


REWARD = Reward(_NAME, 1, dissatisfied_by_llm, LlmJudgeParameters, _check)
