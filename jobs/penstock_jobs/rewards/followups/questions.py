"""Which messages somebody is asked to label: some drawn by chance, some chosen since they tell
much. Those drawn come in the order of their places in the hat, so that the labelled ones are a
random sample whenever somebody stops."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.clock import SystemClock
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock_jobs.rewards.chains import gather_chain
from penstock_jobs.rewards.errors import SessionUnknown
from penstock_jobs.rewards.followups.follow_ups import FollowUp, follow_ups, sessions_of
from penstock_jobs.rewards.followups.judge import Judgement, Message
from penstock_jobs.rewards.followups.labels import (
    UNCLEAR,
    GivenLabel,
    MessagePlace,
    StoredLabel,
    add_label,
    current_labels,
    digest_of,
)
from penstock_jobs.rewards.followups.llm_judge import LlmJudge
from penstock_jobs.rewards.judged_follow_ups import JudgedFollowUps, read_follow_ups


class Question(NamedTuple):
    place: MessagePlace
    judged: float
    drawn: bool


@dataclass(frozen=True)
class QuestionFrame:
    """What the questions for a person are drawn from."""

    tenant: str
    #: The version of the definition whose judge chose them.
    version: str
    follow_ups: JudgedFollowUps
    until_us: int

    def label(
        self,
        question: Question,
        message: Message,
        label: GivenLabel | None,
        by: str,
        *,
        model: bool,
    ) -> StoredLabel:
        return StoredLabel(
            *question.place,
            message=digest_of(message),
            label=label,
            drawn=question.drawn,
            until_us=self.until_us,
            by=by,
            is_model=model,
            at=0,
        )


def read_frame(
    lake: Lake, version: str, tenant: str, checkpoint: str | None, since_us: int | None
) -> QuestionFrame:
    """What the last run of the definition computed. Raises what queries raise."""
    found = read_follow_ups(lake, version, tenant, since_us=since_us)
    if checkpoint is not None:
        found = found.of_checkpoint(checkpoint)
    until_us = int(found.column("last_us").max()) if found else 0
    return QuestionFrame(tenant, version, found, until_us)


@dataclass(frozen=True)
class QuestionOrders:
    """Messages that wait for a label, in the two orders in which people are asked about them."""

    drawn: JudgedFollowUps
    chosen: JudgedFollowUps

    @classmethod
    def of(cls, frame: QuestionFrame, known: Collection[MessagePlace]) -> "QuestionOrders":
        waiting = frame.follow_ups.without(known)
        return cls(waiting.in_drawn_order(), waiting.in_telling_order())


def open_questions(
    frame: QuestionFrame, labels: Iterable[StoredLabel], chosen_share: float
) -> Iterator[Question]:
    """About messages without one of these labels; so large a share is chosen."""
    known = {label.place for label in labels}
    return questions_in(QuestionOrders.of(frame, known), known, chosen_share)


def questions_in(
    orders: QuestionOrders, known: Collection[MessagePlace], chosen_share: float
) -> Iterator[Question]:
    """The same of messages in their orders; of `known` ones nobody is asked."""
    asked = set(known)
    by_chance = (Question(each.place, each.judged, True) for each in orders.drawn)
    by_choice = (Question(each.place, each.judged, False) for each in orders.chosen)
    count = chosen_count = 0
    while True:
        wants_choice = chosen_count + 1 <= chosen_share * (count + 1) + _ROUNDING
        question = _next(by_choice, asked) if wants_choice else None
        question = question or _next(by_chance, asked)
        if question is None:
            return
        asked.add(question.place)
        count += 1
        chosen_count += not question.drawn
        yield question


#: A share of 0.3 of ten is three.
_ROUNDING = 1e-9


def _next(source: Iterator[Question], asked: set[MessagePlace]) -> Question | None:
    return next((question for question in source if question.place not in asked), None)


def follow_up_at(lake: Lake, tenant: str, place: MessagePlace) -> FollowUp | None:
    """The message with what went before it, as judges see it; None if it is not there any more,
    or may not be learned from. Raises LakeDamaged, what the store raises."""
    session = SessionId(tenant, place.session_id)
    try:
        bucket, _ = gather_chain(lake, session, SystemClock().now_us())
    except SessionUnknown:
        return None
    if bucket.chain_of(place.session_id) in map(bucket.chain_of, bucket.refusing()):
        return None
    found = follow_ups(sessions_of(bucket))
    return next((each for each in found if (each.session_id, each.turn) == place), None)


class ModelTally(NamedTuple):
    labelled: int
    #: Messages that the model said nothing of, by why.
    without: dict[str, int]


def label_by_model(lake: Lake, frame: QuestionFrame, model: LlmJudge, count: int) -> ModelTally:
    """Ask a language model about the next messages that chance draws. An answer that cannot be
    read is kept as unclear; it stops where the model cannot be asked any more."""
    labels = current_labels(lake.database, frame.tenant)
    labelled, without = 0, dict[str, int]()
    for number, question in enumerate(open_questions(frame, labels, 0.0)):
        if number >= count:
            break
        follow_up = follow_up_at(lake, frame.tenant, question.place)
        if follow_up is None:
            continue
        [answer] = model.judge([follow_up.message])
        if not isinstance(answer, Judgement) and answer != "unreadable_answer":
            without[answer] = without.get(answer, 0) + 1
            break
        label = answer.label if isinstance(answer, Judgement) else UNCLEAR
        by = f"llm {model.version}"
        stored = frame.label(question, follow_up.message, label, by, model=True)
        add_label(lake.database, frame.tenant, stored, frame.version)
        labelled += 1
    return ModelTally(labelled, without)
