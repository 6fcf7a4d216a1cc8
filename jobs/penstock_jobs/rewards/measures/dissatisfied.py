"""Rewards of follow-ups: dissatisfaction by the local judge or a language model, and asking
again."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError
from penstock.core.settings import Settings
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.followups.follow_ups import (
    FollowUp,
    Verdict,
    follow_ups_of,
    is_from_a_person,
    score_follow_ups,
    verdict_of,
)
from penstock_jobs.rewards.followups.judge import DISSATISFIED, Judge, Judgement, Unjudged
from penstock_jobs.rewards.followups.labels import UNCLEAR, MessagePlace
from penstock_jobs.rewards.followups.llm_judge import judge_version, prompt_version
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.rewards.measures.turns import TurnScore, score_turns
from penstock_jobs.rewards.texts.trail import SECOND


class JudgeUnfit(PenstockError, exit_status=2):
    """The reward {reward} cannot be computed: {why}. Set PENSTOCK_JUDGE_URL,
    PENSTOCK_JUDGE_MODEL={model} and PENSTOCK_JUDGE_MESSAGE_CHARS_MAX={chars}, or change the
    reward's parameters in its definition."""


#: Reasons that say nothing about the message, so that a later run asks again. It waits a while, in
#: case the judge stays unreachable.
_ASK_AGAIN: tuple[Unjudged, ...] = ("budget", "unreachable")
_AGAIN_US = 3_600 * SECOND


def _local_judgements(bucket: Bucket) -> list[Judgement]:
    messages = [follow_up.message for follow_up in follow_ups_of(bucket)]
    return bucket.once("judgements", lambda: local_judge().judge(messages))


@dataclass(frozen=True)
class RawJudgeParameters:
    """`judge` is the version of the local judge, a part of what the definition computes."""

    judge: str = field(default_factory=lambda: local_judge().version)

    def __post_init__(self) -> None:
        if self.judge != (known := local_judge().version):
            raise ValueError(f"the local judge has version {known}, not {self.judge}")


@dataclass(frozen=True)
class LlmJudgeParameters:
    """All that answers depend on: the model, the version of the prompt, and shown characters.

    The model must be named."""

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

    def judge_of(self, bucket: Bucket) -> Judge:
        judge = bucket.llm_judge
        if judge is None:
            raise self.unfit("no judge is set")
        if judge.version != judge_version(self.model, self.message_chars_max):
            raise self.unfit("another model is set, or it is asked in another way")
        return judge


@dataclass(frozen=True)
class LocalJudgeParameters(RawJudgeParameters):
    """The judge is unsure from the first to below the second probability of `unsure`.

    (0.5, 0.5) makes it always sure. `settled_by` names the language model to ask then. An unsettled
    message is censored, or counts as judged with `unsettled = "judged"`."""

    unsure: tuple[float, float] = (0.35, 0.65)
    settled_by: str = ""
    unsettled: Literal["censored", "judged"] = "censored"
    prompt: str = field(default_factory=prompt_version)
    message_chars_max: int = RewardSettings.judge_message_chars_max

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.unsure
        if not 0 <= low <= high <= 1:
            raise ValueError(f"unsure must be [low, high] within 0 and 1, but is {self.unsure}")
        self.language_model()

    def language_model(self) -> LlmJudgeParameters:
        return LlmJudgeParameters(self.settled_by, self.prompt, self.message_chars_max)

    def check(self, settings: Settings) -> None:
        if self.settled_by:
            self.language_model().check(settings)


def dissatisfied_follow_up(bucket: Bucket, parameters: LocalJudgeParameters) -> pa.Table:
    """dissatisfied_follow_up: did the user come back dissatisfied.

    Measures: what the next message says of the agent's work. A judge gives each message after the
    agent acted one label; incomplete, corrects, reports_failure, reverts and complains are
    dissatisfied. It is about the turn before or, if it criticizes and names a file, the earlier
    turn that edited it.

    Formula, per turn that the agent acted in: − the judge's probability of dissatisfied; of several
    messages the worst; −1 where the user stopped the session or the agent and said no more. A
    person's label (`penstock rewards label`) makes it −1 or 0. Within `unsure`, a model's label
    counts, or the model `settled_by` is asked. What is not settled is censored, or with `unsettled
    = "judged"` − the probability: being unclear must win nothing. A session is the mean of its
    turns.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered. Unless `unsettled` says otherwise:
    `unsure`, the judge cannot tell and nobody else said; `unclear`, a person could not tell either;
    `budget`, `unreachable`, `unreadable_answer`, the language model said nothing; after the first
    two a run an hour later asks again. Turns in which the agent did nothing have no row.
    To game it: flatter, promise, or ask: read it beside `asked_instead`. A small judge tells
    checkpoints apart by many sessions, not sessions by one message; `penstock rewards rates`
    corrects its bias by labels.
    """
    verdicts = partial(_settled, bucket, parameters)
    rows = score_follow_ups("dissatisfied_follow_up", bucket, verdicts)
    return _asked_again(bucket, rows) if parameters.settled_by else rows


def _settled(
    bucket: Bucket, parameters: LocalJudgeParameters, follow_ups: Sequence[FollowUp]
) -> list[Verdict]:
    """Settle judgements: people overrule the judge, and models do where it is unsure."""
    judgements, (low, high) = _local_judgements(bucket), parameters.unsure
    verdicts: list[Verdict] = []
    for follow_up, judgement in zip(follow_ups, judgements, strict=True):
        place = MessagePlace(follow_up.session_id, follow_up.turn)
        label = bucket.labels.of_message(place, follow_up.message)
        is_sure = not low <= judgement.dissatisfied < high
        if label is None or (label.is_model and is_sure):
            own = verdict_of(judgement) if is_sure else Verdict(TurnScore(None, "unsure"))
        elif label.label is None or label.label == UNCLEAR:
            own = Verdict(TurnScore(None, UNCLEAR))
        else:
            own = Verdict(TurnScore(0.0 - float(label.label in DISSATISFIED)), label.label)
        verdicts.append(own)
    if parameters.settled_by:
        model = parameters.language_model().judge_of(bucket)
        refused = {bucket.chain_of(session) for session in bucket.refusing()}
        open_ = [
            number
            for number, follow_up in enumerate(follow_ups)
            if verdicts[number].score.reason == "unsure"
            # A message is shown with earlier ones from any session of the chain.
            and bucket.chain_of(follow_up.session_id) not in refused
        ]
        answers = model.judge([follow_ups[number].message for number in open_])
        for number, answer in zip(open_, answers, strict=True):
            verdicts[number] = verdict_of(answer)
    if parameters.unsettled == "judged":
        verdicts = list(map(_counted, verdicts, judgements))
    return verdicts


def _counted(verdict: Verdict, judgement: Judgement) -> Verdict:
    """Count an unsettled message as judged. The reason stays, so that a later run asks again."""
    if verdict.score.value is not None:
        return verdict
    judged = verdict_of(judgement)
    return judged._replace(score=judged.score._replace(reason=verdict.score.reason))


def judged_follow_up(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """judged_follow_up: what the local judge thinks of each message, however unsure it is.

    Measures: the probability that `dissatisfied_follow_up` begins with. `penstock rewards rates`
    and live metrics correct it by labels, and `penstock rewards label` asks about it.

    Formula, per turn that begins with a message after the agent acted: the judge's probability that
    this message is dissatisfied. A session is the mean of its messages.

    Range: 0 to 1: lower is better.
    pending, censored: never. Other turns have no row.
    To game it: as dissatisfied_follow_up. Give it no weight: it counts what a person settled
    otherwise.
    """
    scores = {
        (follow_up.session_id, follow_up.turn): TurnScore(judgement.dissatisfied)
        for follow_up, judgement in zip(
            follow_ups_of(bucket), _local_judgements(bucket), strict=True
        )
    }
    return score_turns(
        "judged_follow_up", bucket, lambda turn: scores.get((turn["session_id"], turn["turn"]))
    )


def dissatisfied_by_llm(bucket: Bucket, parameters: LlmJudgeParameters) -> pa.Table:
    """dissatisfied_by_llm: did the user come back dissatisfied, as a language model sees it.

    Measures: what `dissatisfied_follow_up` measures, by the model behind PENSTOCK_JUDGE_URL. It
    costs money and sends what users wrote, so it is computed only where a definition names it.

    Formula, per turn that the agent acted in: as dissatisfied_follow_up, with the model's
    probability.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered; `no_train`, the session's messages are
    never sent; `budget`, the run had no requests or tokens left; `unreachable`, the model could not
    be asked, or refused; `unreadable_answer`. After `budget` and `unreachable` a run an hour later
    or more asks again. Turns in which the agent did nothing have no row.
    To game it: as dissatisfied_follow_up; and users can say outright how they want to be labelled.
    What stands behind a model's name may change: compare it with `dissatisfied_follow_up`.
    """
    judge = parameters.judge_of(bucket)

    def verdicts(shown: Sequence[FollowUp]) -> list[Verdict]:
        return list(map(verdict_of, judge.judge([follow_up.message for follow_up in shown])))

    rows = score_follow_ups("dissatisfied_by_llm", bucket, verdicts, bucket.refusing())
    return _asked_again(bucket, rows)


def _asked_again(bucket: Bucket, rows: pa.Table) -> pa.Table:
    missed = pc.is_in(rows["reason"], pa.array(_ASK_AGAIN))
    due_us = pc.if_else(missed, bucket.as_of_us + _AGAIN_US, pa.scalar(None, pa.int64()))
    at = rows.column_names.index("due_us")
    return rows.set_column(at, rows.schema.field("due_us"), due_us)


# Asked again


_WORD = re.compile(r"[^\W\d_]\w*|\d\w+")
#: Scripts without spaces between words: each pair of characters is a word.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{2,}")
#: Only the beginning of a longer message counts: the rest is mostly pasted.
_CHARS_MAX = 4_000
_WORD_MIN = 3


@dataclass(frozen=True)
class RequestParameters:
    """A request with fewer characters in words than `chars_min` is too short.

    The share `free_share` of it may recur in any message about the same files."""

    chars_min: int = 20
    free_share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.free_share < 1:
            raise ValueError("free_share must be in [0, 1)")


def asked_again(bucket: Bucket, parameters: RequestParameters) -> pa.Table:
    """asked_again: did the user have to ask for the same again.

    Measures: whether the work was done, by the user's next request: who repeats it did not get it.

    Formula, per turn that the agent acted in and that a message followed: share = length of the
    words of the turn's request that the next message says again / length of all its words. Words
    have three characters or more and count once; in scripts without spaces two characters in a row.
    Above `free_share`,

        value = − (share − free_share) / (1 − free_share)

    A session is the mean of its turns.

    Range: −1, all of it, to 0.
    pending: never. censored: `silence`, no message followed; `short_request`, it says too little.
    Turns without a request, or in which the agent did nothing, have no row.
    To game it: ask the user for something else at the end; read it beside `asked_instead`. Other
    words for the same are not noticed, and a new request may name the same things.
    """
    scores: dict[tuple[str, int], TurnScore] = {}
    columns = ("turn", "text", "model_calls", "tool_calls", "edits")
    for session, rows in by_session(bucket.turns, *columns).items():
        request: set[str] | None = None
        acted: int | None = None
        for row in sorted(rows, key=lambda row: row["turn"]):
            text = row["text"]
            if text is not None and is_from_a_person(text):
                words = set(words_of(text))
                if acted is not None and request is not None and not bucket.is_subagent(session):
                    scores[session, acted] = _score(request, words, parameters)
                request, acted = words, None
            if request is not None and (row["model_calls"] or row["tool_calls"] or row["edits"]):
                acted = row["turn"]
                scores[session, acted] = TurnScore(None, "silence")
    return score_turns(
        "asked_again", bucket, lambda turn: scores.get((turn["session_id"], turn["turn"]))
    )


def words_of(text: str) -> Iterator[str]:
    text = text[:_CHARS_MAX].lower()
    for run in _UNSPACED.findall(text):
        yield from (run[at : at + 2] for at in range(len(run) - 1))
    for word in _WORD.findall(_UNSPACED.sub(" ", text)):
        if len(word) >= _WORD_MIN:
            yield word


def _score(request: set[str], words: set[str], parameters: RequestParameters) -> TurnScore:
    whole = sum(map(len, request))
    if whole < parameters.chars_min:
        return TurnScore(None, "short_request")
    share = sum(map(len, request & words)) / whole
    excess = max(share - parameters.free_share, 0.0)
    return TurnScore(0.0 - excess / (1 - parameters.free_share))


REWARDS = (
    Reward(
        "dissatisfied_follow_up",
        2,
        dissatisfied_follow_up,
        LocalJudgeParameters,
        LocalJudgeParameters.check,
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
    Reward("asked_again", 1, asked_again, RequestParameters),
)
