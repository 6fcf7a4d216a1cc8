"""The rewards of follow-ups: did the user come back dissatisfied, by the local judge and by a
language model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.errors import JudgeUnfit
from penstock_jobs.rewards.followups.follow_ups import (
    FollowUp,
    Verdict,
    follow_ups_of,
    score_follow_ups,
    verdict_of,
)
from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    Judge,
    Judgement,
    Message,
    Unjudged,
)
from penstock_jobs.rewards.followups.labels import UNCLEAR, MessagePlace
from penstock_jobs.rewards.followups.llm_judge import judge_version, prompt_version
from penstock_jobs.rewards.followups.local_judge import LocalJudge, judge_of_version
from penstock_jobs.rewards.measures.turns import TurnScore, score_turns
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.texts.trail import SECOND

#: Reasons that say nothing about the message: a later run may know more. Only after a while, since
#: a run that cannot ask either computes these sessions for nothing.
_ASK_AGAIN: tuple[Unjudged, ...] = ("budget", "unreachable")
_AGAIN_US = 3_600 * SECOND

#: What the local judges said of the messages of a bucket: two rewards ask the same of them.
_judged: WeakKeyDictionary[Bucket, dict[tuple[str, tuple[Message, ...]], list[Judgement]]] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True)
class _BucketJudge:
    """A local judge that reads each list of a bucket's messages once."""

    bucket: Bucket
    version: str

    @property
    def name(self) -> str:
        return judge_of_version(self.version).name

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        known = _judged.setdefault(self.bucket, {})
        key = self.version, tuple(messages)
        if key not in known:
            known[key] = judge_of_version(self.version).judge(messages)
        return known[key]


def _known_judge(version: str) -> None:
    """Raises ValueError, which names the versions that there are."""
    judge_of_version(version)


@dataclass(frozen=True)
class LocalJudgeParameters:
    """`judge` is the version of the local judge: it is part of what a definition computes.
    From the first to below the second probability of `unsure` the judge cannot tell; (0.5, 0.5)
    has it tell always. `settled_by` names the language model that is asked then. What nobody
    settled is censored, or, with `unsettled = "judged"`, worth what the judge says all the same."""

    judge: str = field(default_factory=lambda: LocalJudge().version)
    unsure: tuple[float, float] = (0.35, 0.65)
    settled_by: str = ""
    unsettled: Literal["censored", "judged"] = "censored"
    prompt: str = field(default_factory=prompt_version)
    message_chars_max: int = RewardSettings.judge_message_chars_max

    def __post_init__(self) -> None:
        _known_judge(self.judge)
        low, high = self.unsure
        if not 0 <= low <= high <= 1:
            raise ValueError(f"unsure has to be [low, high] within 0 and 1, and is {self.unsure}")
        if self.prompt != prompt_version():
            raise ValueError(f"the prompt has version {prompt_version()}, not {self.prompt}")

    def language_model(self) -> "LlmJudgeParameters":
        return LlmJudgeParameters(self.settled_by, self.prompt, self.message_chars_max)


def _check_settled_by(parameters: LocalJudgeParameters, settings: Settings) -> None:
    if parameters.settled_by:
        parameters.language_model().check(settings)


def dissatisfied_follow_up(bucket: Bucket, parameters: LocalJudgeParameters) -> pa.Table:
    """dissatisfied_follow_up: did the user come back dissatisfied.

    Measures: what the user's next message says of the agent's work. A judge gives each message
    after the agent acted one label of eight; corrects, reports_failure, reverts and complains are
    dissatisfied. The label is about the turn before, or, if it criticizes and names a file, about
    the earlier turn that edited that file. What a subagent is told is no message of the user.

    Formula, per turn that the agent acted in: − the judge's probability of dissatisfied; of several
    messages about one turn the worst counts; −1 where the user stopped the session or the agent and
    said nothing more. A session is the mean of its turns. Where a person labelled the message
    (`penstock rewards label`), their word counts: −1 or 0. Where the probability lies within
    `unsure`, a language model's label counts, or the model `settled_by` is asked. What is not
    settled by that is censored, or with `unsettled = "judged"` − the probability all the same: so
    it is in `default`, since being unclear must win nothing.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered: most who are content say nothing, and
    so do most who are not. Unless `unsettled` says otherwise: `unsure`, the judge cannot tell and
    nobody else said; `unclear`, a person could not tell either; `budget`, `unreachable`,
    `unreadable_answer`, the language model said nothing. After `budget` and `unreachable` a run an
    hour later asks again. Turns in which the agent did nothing have no row.
    To game it: flatter, promise, or ask, so that the next message is an answer: read it beside
    `asked_instead`. The judge is a small model trained on written examples: it tells checkpoints
    apart by many sessions, not sessions by one message, and its rates are biased: those that
    `penstock rewards rates` corrects by labels are not.
    """
    judge = _BucketJudge(bucket, parameters.judge)
    settle = _Settlement(bucket, parameters)
    rows = score_follow_ups("dissatisfied_follow_up", bucket, judge, settle=settle)
    return _asked_again(bucket, rows) if parameters.settled_by else rows


class _Settlement:
    """What becomes of judgements: people outrank the judge, and models where it is unsure."""

    def __init__(self, bucket: Bucket, parameters: LocalJudgeParameters) -> None:
        self._labels, self._unsure = bucket.labels, parameters.unsure
        self._counts_unsettled = parameters.unsettled == "judged"
        # A message is shown with what was said before, in whatever session of the chain.
        self._chain_of = bucket.chain_of
        self._refused = {bucket.chain_of(session) for session in bucket.refusing()}
        self._model = None
        if parameters.settled_by:
            self._model = _fitting(bucket, parameters.language_model())

    def __call__(
        self, follow_ups: Sequence[FollowUp], judgements: Sequence[Judgement | Unjudged]
    ) -> list[Verdict]:
        verdicts = list(map(self._settled, follow_ups, judgements))
        if self._model:
            open_ = [
                number
                for number, follow_up in enumerate(follow_ups)
                if verdicts[number].score.reason == "unsure"
                and self._chain_of(follow_up.session_id) not in self._refused
            ]
            answers = self._model.judge([follow_ups[number].message for number in open_])
            for number, answer in zip(open_, answers, strict=True):
                verdicts[number] = verdict_of(answer)
        if self._counts_unsettled:
            verdicts = list(map(_counted, verdicts, judgements))
        return verdicts

    def _settled(self, follow_up: FollowUp, judgement: Judgement | Unjudged) -> Verdict:
        place = MessagePlace(follow_up.session_id, follow_up.turn)
        label = self._labels.of_message(place, follow_up.message)
        low, high = self._unsure
        is_sure = isinstance(judgement, Judgement) and not low <= judgement.dissatisfied < high
        if label is None or (label.is_model and is_sure):
            return verdict_of(judgement) if is_sure else Verdict(TurnScore(None, "unsure"))
        if label.label is None or label.label == UNCLEAR:
            return Verdict(TurnScore(None, UNCLEAR))
        return Verdict(TurnScore(0.0 - float(label.label in DISSATISFIED)), label.label)


def _counted(verdict: Verdict, judgement: Judgement | Unjudged) -> Verdict:
    """What the judge says where nobody settled it; the reason stays, so that whoever could not be
    asked is asked again."""
    if verdict.score.value is not None:
        return verdict
    judged = verdict_of(judgement)
    return judged._replace(score=judged.score._replace(reason=verdict.score.reason))


@dataclass(frozen=True)
class RawJudgeParameters:
    """`judge` is the version of the local judge."""

    judge: str = field(default_factory=lambda: LocalJudge().version)

    def __post_init__(self) -> None:
        _known_judge(self.judge)


def judged_follow_up(bucket: Bucket, parameters: RawJudgeParameters) -> pa.Table:
    """judged_follow_up: what the local judge thinks of each message, however unsure it is.

    Measures: the probability of dissatisfied that `dissatisfied_follow_up` begins with. It is there
    for rates: `penstock rewards rates` and live metrics correct it by labels, and `penstock rewards
    label` asks about it.

    Formula, per turn that begins with a message after the agent acted: the judge's probability that
    this message is dissatisfied. A session is the mean of its messages.

    Range: 0 to 1: lower is better.
    pending, censored: never. Other turns have no row.
    To game it: as dissatisfied_follow_up. Give it no weight: it counts what a person settled
    otherwise.
    """
    judge = _BucketJudge(bucket, parameters.judge)
    found = follow_ups_of(bucket)
    judgements = judge.judge([follow_up.message for follow_up in found])
    scores = {
        (follow_up.session_id, follow_up.turn): TurnScore(judgement.dissatisfied)
        for follow_up, judgement in zip(found, judgements, strict=True)
    }
    return score_turns(
        "judged_follow_up", bucket, lambda turn: scores.get((turn["session_id"], turn["turn"]))
    )


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
    judge = _fitting(bucket, parameters)
    rows = score_follow_ups("dissatisfied_by_llm", bucket, judge, bucket.refusing())
    return _asked_again(bucket, rows)


def _fitting(bucket: Bucket, parameters: LlmJudgeParameters) -> Judge:
    """Raises JudgeUnfit."""
    judge = bucket.llm_judge
    if judge is None:
        raise parameters.unfit("no judge is set")
    if judge.version != judge_version(parameters.model, parameters.message_chars_max):
        raise parameters.unfit("another model is set, or it is asked in another way")
    return judge


def _asked_again(bucket: Bucket, rows: pa.Table) -> pa.Table:
    missed = pc.is_in(rows["reason"], pa.array(_ASK_AGAIN))
    due_us = pc.if_else(missed, bucket.as_of_us + _AGAIN_US, pa.scalar(None, pa.int64()))
    at = rows.column_names.index("due_us")
    return rows.set_column(at, rows.schema.field("due_us"), due_us)


REWARDS = (
    Reward(
        "dissatisfied_follow_up",
        2,
        dissatisfied_follow_up,
        LocalJudgeParameters,
        _check_settled_by,
    ),
    Reward("judged_follow_up", 1, judged_follow_up, RawJudgeParameters),
    Reward(
        "dissatisfied_by_llm",
        1,
        dissatisfied_by_llm,
        LlmJudgeParameters,
        LlmJudgeParameters.check,
        only_named=True,
    ),
)
