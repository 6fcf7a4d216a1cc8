"""Questions to labellers: messages drawn at random, and messages chosen as informative.

Drawn messages come in the order of their random places, so they are a random sample at any
moment."""

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from penstock.core.clock import SystemClock
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.follow_ups import FollowUp, follow_ups_of
from penstock_jobs.rewards.followups.judge import Judgement
from penstock_jobs.rewards.followups.labels import (
    UNCLEAR,
    JudgedFollowUps,
    MessagePlace,
    StoredLabel,
    add_label,
    current_labels,
    digest_of,
    read_follow_ups,
)
from penstock_jobs.rewards.followups.llm_judge import LlmJudge
from penstock_jobs.rewards.history.session_chains import SessionUnknown, gather_chain
from penstock_jobs.rewards.tables import reward_file

#: So that a share of 0.3 of ten is three.
_ROUNDING = 1e-9
#: One message is asked again for so many labels.
_REPEAT_EVERY = 10
#: Messages kept of each order. They are sorted anew when half of them have a label.
_KEPT_MAX = 1_000
#: Combinations of tenant, definition and checkpoint that are labelled at the same time.
_FRAMES_MAX = 20


class Question(NamedTuple):
    place: MessagePlace
    judged: float
    checkpoint: str | None
    drawn: bool
    #: It has a label; a second one shows how sure labels are.
    again: bool = False


@dataclass(frozen=True)
class QuestionFrame:
    """Messages without a label, in the two orders of questions."""

    version: str
    drawn: JudgedFollowUps
    chosen: JudgedFollowUps
    #: Counts of messages without and with a label, when they were sorted.
    waiting: int
    labelled: int
    until_us: int
    places: frozenset[MessagePlace] = frozenset()

    def counts(self, places: frozenset[MessagePlace]) -> tuple[int, int]:
        since = places - self.places
        known = self.drawn.numbers_of(since).keys() | self.chosen.numbers_of(since).keys()
        return self.waiting - len(known), self.labelled + len(known)


def read_frame(
    lake: Lake,
    version: str,
    tenant: str,
    checkpoint: str | None = None,
    places: frozenset[MessagePlace] = frozenset(),
) -> QuestionFrame:
    """Read messages of the definition's newest run, without labelled places."""
    found = read_follow_ups(lake, version, tenant)
    if checkpoint is not None:
        found = found.of_checkpoint(checkpoint)
    until_us = int(found.column("last_us").max()) if found else 0
    waiting = found.without(places)
    return QuestionFrame(
        version,
        drawn=waiting.in_drawn_order(),
        chosen=waiting.in_telling_order(),
        waiting=len(waiting),
        labelled=len(found) - len(waiting),
        until_us=until_us,
        places=places,
    )


def repeated_question(
    labels: Sequence[StoredLabel], repeated: Collection[MessagePlace]
) -> Question | None:
    """Return a message to ask again, once for `_REPEAT_EVERY` labels; else None.

    It is the oldest drawn one, so that few remember what they said."""
    if len(labels) < _REPEAT_EVERY * (len(repeated) + 1):
        return None
    open_ = (label for label in labels if label.drawn and label.place not in repeated)
    oldest = min(open_, key=lambda label: label.at, default=None)
    return oldest and Question(oldest.place, float("nan"), None, drawn=True, again=True)


def questions(
    frame: QuestionFrame, labels: Sequence[StoredLabel], chosen_share: float
) -> Iterator[Question]:
    """Yield questions about unlabelled messages. `chosen_share` counts earlier labels too."""
    asked = {label.place for label in labels}
    count, chosen_count = len(labels), sum(not label.drawn for label in labels)
    by_chance = (Question(each.place, each.judged, each.checkpoint, True) for each in frame.drawn)
    by_choice = (Question(each.place, each.judged, each.checkpoint, False) for each in frame.chosen)
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


def _next(source: Iterator[Question], asked: set[MessagePlace]) -> Question | None:
    return next((question for question in source if question.place not in asked), None)


def follow_up_at(lake: Lake, tenant: str, place: MessagePlace) -> FollowUp | None:
    """Return a message as judges see it; None if it is gone or refuses training.

    Raises LakeDamaged, what the store raises."""
    session = SessionId(tenant, place.session_id)
    try:
        bucket = gather_chain(lake, session, SystemClock().now_us())
    except SessionUnknown:
        return None
    if bucket.chain_of(place.session_id) in map(bucket.chain_of, bucket.refusing()):
        return None
    found = follow_ups_of(bucket)
    return next((each for each in found if (each.session_id, each.turn) == place), None)


class ModelTally(NamedTuple):
    labelled: int
    without: dict[str, int]


def label_by_model(
    lake: Lake, tenant: str, frame: QuestionFrame, model: LlmJudge, count: int
) -> ModelTally:
    """Let a language model label the next drawn messages, while it is reachable.

    An unreadable answer is stored as unclear."""
    labels = current_labels(lake.database, tenant)
    labelled, without = 0, dict[str, int]()
    for _, question in zip(range(count), questions(frame, labels, 0.0), strict=False):
        follow_up = follow_up_at(lake, tenant, question.place)
        if follow_up is None:
            continue
        [answer] = model.judge([follow_up.message])
        if not isinstance(answer, Judgement) and answer != "unreadable_answer":
            without[answer] = without.get(answer, 0) + 1
            break
        stored = StoredLabel(
            *question.place,
            message=digest_of(follow_up.message),
            label=answer.label if isinstance(answer, Judgement) else UNCLEAR,
            drawn=True,
            until_us=frame.until_us,
            by=f"llm {model.version}",
            is_model=True,
        )
        add_label(lake.database, tenant, stored, frame.version)
        labelled += 1
    return ModelTally(labelled, without)


# Frames kept between questions: reading and sorting all verdicts takes seconds

_State = tuple[int | None, ...]
_Frames = dict[tuple[str, str, str | None], tuple[_State, QuestionFrame]]
_frames: WeakKeyDictionary[Lake, _Frames] = WeakKeyDictionary()
_frames_lock = threading.Lock()


def kept_frame(
    lake: Lake,
    version: str,
    tenant: str,
    checkpoint: str | None,
    places: frozenset[MessagePlace],
) -> QuestionFrame:
    """Return the first messages of each order by current rewards. Raises what queries raise."""
    key, state = (tenant, version, checkpoint), _state_of(lake, tenant, version)
    with _frames_lock:
        frames = _frames.setdefault(lake, {})
        before, frame = frames.get(key, (None, None))
    if frame is None or before != state or len(places ^ frame.places) > _KEPT_MAX // 2:
        whole = read_frame(lake, version, tenant, checkpoint, places)
        first = whole.drawn.first(_KEPT_MAX), whole.chosen.first(_KEPT_MAX)
        frame = replace(whole, drawn=first[0], chosen=first[1])
        with _frames_lock:
            frames[key] = state, frame
            while len(frames) > _FRAMES_MAX:
                del frames[next(iter(frames))]
    return frame


def _state_of(lake: Lake, tenant: str, version: str) -> _State:
    """Return a value that changes whenever rewards of this definition come or go."""
    files, most = reward_file.c, sa.func.max
    changes = sa.select(sa.func.count(), most(files.added_snap), most(files.removed_snap))
    mine = (files.definition_version == version, files.tenant == tenant)
    with lake.database.read() as connection:
        return tuple(connection.execute(changes.where(*mine)).one())
