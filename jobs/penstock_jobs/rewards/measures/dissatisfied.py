"""Rewards of follow-ups: dissatisfaction by the local judge or a language model, and asking
again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError
from penstock.core.settings import Settings
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.bucket import Bucket, TurnKey
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.followups.follow_ups import (
    FollowUp,
    follow_ups_of,
    sessions_of,
    silences,
)
from penstock_jobs.rewards.followups.judge import DISSATISFIED, Judge, Judgement, Label, Unjudged
from penstock_jobs.rewards.followups.labels import UNCLEAR, MessagePlace
from penstock_jobs.rewards.followups.llm_judge import judge_version, prompt_version
from penstock_jobs.rewards.measures.turns import TurnScore, score_turns
from penstock_jobs.rewards.requests import (
    RawJudgeParameters,
    Request,
    Scores,
    judged_remark,
    judgements_of,
    remark_of,
    remarks_of,
    repeated_share,
    requests_of,
    words_of,
)
from penstock_jobs.rewards.rows import RewardRows, Standing
from penstock_jobs.rewards.texts.trail import SECOND


class JudgeUnfit(PenstockError, exit_status=2):
    """The reward {reward} cannot be computed: {why}. Set PENSTOCK_JUDGE_URL,
    PENSTOCK_JUDGE_MODEL={model} and PENSTOCK_JUDGE_MESSAGE_CHARS_MAX={chars}, or change the
    reward's parameters in its definition."""


#: Reasons that say nothing about the message, so that a later run asks again. It waits a while, in
#: case the judge stays unreachable.
_ASK_AGAIN: tuple[Unjudged, ...] = ("budget", "unreachable")
_AGAIN_US = 3_600 * SECOND


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


class Verdict(NamedTuple):
    """The value of a message, from −1 to 0, and the label if somebody gave one."""

    value: float | None
    reason: str | None = None
    label: Label | None = None


def _verdict_of(judgement: Judgement | Unjudged) -> Verdict:
    if isinstance(judgement, Judgement):
        return Verdict(0.0 - judgement.dissatisfied, label=judgement.label)
    return Verdict(None, judgement)


def _score_requests(
    name: str,
    bucket: Bucket,
    verdicts: Callable[[Sequence[FollowUp]], Sequence[Verdict]],
    no_train: Collection[str] = (),
) -> pa.Table:
    """Score each request that the agent acted in: the worst of what is said about it counts.

    `verdicts` never gets messages of the sessions `no_train`."""
    said, remarks, requests = follow_ups_of(bucket), remarks_of(bucket), requests_of(bucket)
    # A message is shown with earlier ones from any session of the chain.
    refused = {bucket.chain_of(session) for session in no_train}
    shown = [n for n, each in enumerate(said) if bucket.chain_of(each.session_id) not in refused]
    found = dict(zip(shown, verdicts([said[number] for number in shown]), strict=True))
    scores: dict[Request, Scores] = {}
    for request in requests.all:
        own = [Verdict(-1.0)] if request.stopped else []
        own += [Verdict(0.0 - disliked) for disliked in request.disliked()]
        for number in request.about:
            verdict, remark = found.get(number, Verdict(None, "no_train")), remarks[number]
            if verdict.label is not None and verdict.value is not None:
                remark = remark_of(said[number].message, verdict.label, 0.0 - verdict.value)
            if not remark.is_neutral:
                own.append(verdict)
        if request.acted:
            own = own or [Verdict(None, "silence")]
            # The worst. An unknown one is no worse than a known one.
            value, reason, _ = min(own, key=lambda one: 1.0 if one.value is None else one.value)
            standing = Standing("censored" if value is None else "scored", value, reason)
            scores[request] = {None: standing}
    return requests.rows(name, scores)


def dissatisfied_follow_up(bucket: Bucket, parameters: LocalJudgeParameters) -> pa.Table:
    """dissatisfied_follow_up: did the user come back dissatisfied.

    Measures: what messages say of the agent's work on a request. A judge gives each message after
    the agent acted one label; incomplete, corrects, reports_failure, reverts and complains are
    dissatisfied. Questions, answers to the agent's and wishes for more judge nothing.

    Formula, per request that the agent acted in: − the judge's probability of dissatisfied, of the
    worst message about it, or the share of negative feedback; −1 where the user stopped the session
    or the agent and said no more. A person's label (`penstock rewards label`) makes a message −1 or
    0. Within `unsure`, a model's label counts, or the model `settled_by` is asked. What is not
    settled is censored, or with `unsettled = "judged"` − the probability: being unclear must win
    nothing. A session is the mean of its requests by size.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has judged it. Unless `unsettled` says otherwise:
    `unsure`, the judge cannot tell and nobody else said; `unclear`, a person could not tell either;
    `budget`, `unreachable`, `unreadable_answer`, the language model said nothing; after the first
    two a run an hour later asks again. Requests in which the agent did nothing have no row.
    To game it: flatter, promise, or ask: read it beside `asked_instead`. A small judge tells
    checkpoints apart by many sessions, not sessions by one message; `penstock rewards rates`
    corrects its bias by labels.
    """
    verdicts = partial(_settled, bucket, parameters)
    rows = _score_requests("dissatisfied_follow_up", bucket, verdicts)
    return _ask_again(bucket, rows) if parameters.settled_by else rows


def _settled(
    bucket: Bucket, parameters: LocalJudgeParameters, follow_ups: Sequence[FollowUp]
) -> list[Verdict]:
    """Settle judgements: people overrule the judge, and models do where it is unsure."""
    judgements, (low, high) = judgements_of(bucket), parameters.unsure
    verdicts: list[Verdict] = []
    for follow_up, judgement in zip(follow_ups, judgements, strict=True):
        place = MessagePlace(follow_up.session_id, follow_up.turn)
        label = bucket.labels.of_message(place, follow_up.message)
        is_sure = not low <= judgement.dissatisfied < high
        if label is None or (label.is_model and is_sure):
            own = _verdict_of(judgement) if is_sure else Verdict(None, "unsure")
        elif label.label is None or label.label == UNCLEAR:
            own = Verdict(None, UNCLEAR)
        else:
            own = Verdict(0.0 - float(label.label in DISSATISFIED), label=label.label)
        verdicts.append(own)
    if parameters.settled_by:
        model = parameters.language_model().judge_of(bucket)
        refused = {bucket.chain_of(session) for session in bucket.refusing()}
        open_ = [
            number
            for number, follow_up in enumerate(follow_ups)
            if verdicts[number].reason == "unsure"
            # A message is shown with earlier ones from any session of the chain.
            and bucket.chain_of(follow_up.session_id) not in refused
        ]
        answers = model.judge([follow_ups[number].message for number in open_])
        for number, answer in zip(open_, answers, strict=True):
            verdicts[number] = _verdict_of(answer)
    if parameters.unsettled == "judged":
        # The reason of an unsettled one stays, so that a later run asks again.
        verdicts = [
            _verdict_of(judged)._replace(reason=own.reason) if own.value is None else own
            for own, judged in zip(verdicts, judgements, strict=True)
        ]
    return verdicts


def judged_follow_up(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """judged_follow_up: what the local judge thinks of each message, however unsure it is.

    Measures: the probability that `dissatisfied_follow_up` begins with. `penstock rewards rates`
    and live metrics correct it by labels, and `penstock rewards label` asks about it.

    Formula, per turn that begins with a message after the agent acted: the judge's probability that
    this message is dissatisfied; its label is the reason. A session is the mean of its messages.
    `follow_up_answers` is 1 where the agent had closed with a question, `request_stopped` in the
    last turn of a conversation that the user stopped without another word.

    Range: 0 to 1: lower is better.
    pending, censored: never. Other turns have no row.
    To game it: as dissatisfied_follow_up. Give it no weight: it counts what a person settled
    otherwise.
    """
    scores: dict[TurnKey, TurnScore] = {}
    answers, stops = RewardRows("follow_up_answers"), RewardRows("request_stopped")
    for follow_up, judgement in zip(follow_ups_of(bucket), judgements_of(bucket), strict=True):
        session, turn = follow_up.session_id, follow_up.turn
        remark = judged_remark(follow_up.message, judgement)
        scores[session, turn] = TurnScore(judgement.dissatisfied, remark.label)
        if remark.answers:
            answers.add(session, ("turn", str(turn)), 1.0)
    for (session, turn), evidence in silences(sessions_of(bucket)):
        if evidence and not bucket.is_subagent(session):
            stops.add(session, ("turn", str(turn)), 1.0)
    judged = score_turns(
        "judged_follow_up", bucket, lambda turn: scores.get((turn["session_id"], turn["turn"]))
    )
    return pa.concat_tables([judged, answers.table(), stops.table()])


def dissatisfied_by_llm(bucket: Bucket, parameters: LlmJudgeParameters) -> pa.Table:
    """dissatisfied_by_llm: did the user come back dissatisfied, as a language model sees it.

    Measures: what `dissatisfied_follow_up` measures, by the model behind PENSTOCK_JUDGE_URL. It
    costs money and sends what users wrote, so it is computed only where a definition names it.

    Formula, per request: as dissatisfied_follow_up, with the model's labels and probability.

    Range: −1 to 0.
    pending: never. censored: `silence`, nobody has answered; `no_train`, the session's messages are
    never sent; `budget`, the run had no requests or tokens left; `unreachable`, the model could not
    be asked, or refused; `unreadable_answer`. After `budget` and `unreachable` a run an hour later
    or more asks again. Requests in which the agent did nothing have no row.
    To game it: as dissatisfied_follow_up; and users can say outright how they want to be labelled.
    What stands behind a model's name may change: compare it with `dissatisfied_follow_up`.
    """
    judge = parameters.judge_of(bucket)

    def verdicts(shown: Sequence[FollowUp]) -> list[Verdict]:
        return list(map(_verdict_of, judge.judge([follow_up.message for follow_up in shown])))

    rows = _score_requests("dissatisfied_by_llm", bucket, verdicts, bucket.refusing())
    return _ask_again(bucket, rows)


def _ask_again(bucket: Bucket, rows: pa.Table) -> pa.Table:
    missed = pc.is_in(rows["reason"], pa.array(_ASK_AGAIN))
    due_us = pc.if_else(missed, bucket.as_of_us + _AGAIN_US, pa.scalar(None, pa.int64()))
    at = rows.column_names.index("due_us")
    return rows.set_column(at, rows.schema.field("due_us"), due_us)


# Asked again


@dataclass(frozen=True)
class AskedAgainParameters(RawJudgeParameters):
    """A request with fewer characters in words than `chars_min` is too short.

    The share `free_share` of it may recur in any message about the same files."""

    chars_min: int = 20
    free_share: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.free_share < 1:
            raise ValueError("free_share must be in [0, 1)")


def asked_again(bucket: Bucket, parameters: AskedAgainParameters) -> pa.Table:
    """asked_again: did the user have to ask for the same again, where no judge noticed.

    Measures: whether the work was done, by what users ask next: who repeats a request in its own
    words did not get it.

    Formula, per request that the agent acted in and that a message followed: share = length of the
    request's words that a message says again / length of all its words. Words have three characters
    or more and count once; in scripts without spaces two characters in a row. Above `free_share`,

        value = − max((share − free_share) / (1 − free_share) − dissatisfied, 0)

    of the worst message, where dissatisfied is the request's worst judgement: nothing counts twice.
    A session is the mean of its requests by size.

    Range: −1, all of it, to 0.
    pending: never. censored: `silence`, no message followed; `short_request`, it says too little.
    Requests without words, or in which the agent did nothing, have no row.
    To game it: ask the user for something else at the end; read it beside `asked_instead`. A new
    request may name the same things.
    """
    said, requests = follow_ups_of(bucket), requests_of(bucket)
    scores: dict[Request, Scores] = {}
    for request in requests.all:
        if request.acted and (words := words_of(request.text)):
            later = [said[number].message.text for number in request.about]
            score = Standing("censored", reason="silence")
            if sum(map(len, words)) < parameters.chars_min:
                score = score._replace(reason="short_request")
            elif later:
                share = max(repeated_share(request.text, text) for text in later)
                excess = (share - parameters.free_share) / (1 - parameters.free_share)
                value = 0.0 - max(excess - (request.dissatisfied or 0.0), 0.0)
                score = Standing("scored", value)
            scores[request] = {None: score}
    return requests.rows("asked_again", scores)


REWARDS = (
    Reward(
        "dissatisfied_follow_up",
        3,
        dissatisfied_follow_up,
        LocalJudgeParameters,
        LocalJudgeParameters.check,
    ),
    Reward("judged_follow_up", 2, judged_follow_up, RawJudgeParameters),
    Reward(
        "dissatisfied_by_llm",
        2,
        dissatisfied_by_llm,
        LlmJudgeParameters,
        LlmJudgeParameters.check,
        only_named=True,
    ),
    Reward("asked_again", 2, asked_again, AskedAgainParameters),
)
