"""Questions to labellers: messages drawn at random, with those before them that decide the request
that ends there.

Drawn messages come in the order of their random places, so what is decided is a random sample at
any moment."""

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import sqlalchemy as sa

from penstock.core.clock import SystemClock
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.follow_ups import FollowUp, follow_ups_of
from penstock_jobs.rewards.followups.judge import Judgement, Unjudged
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

#: One message is asked again for so many labels.
_REPEAT_EVERY = 10
#: Drawn messages whose conversations are kept, until half as many labels came.
_KEPT_MAX = 1_000
#: Combinations of tenant, definition and checkpoint that are labelled at the same time.
_FRAMES_MAX = 20


class Question(NamedTuple):
    place: MessagePlace
    judged: float
    checkpoint: str | None
    #: By chance; not where it decides the request of another message.
    drawn: bool
    #: It has a label; a second one shows how sure labels are.
    again: bool = False


@dataclass(frozen=True)
class QuestionFrame:
    """Conversations with messages to label."""

    version: str
    follow_ups: JudgedFollowUps
    #: Counts of messages without and with a label, when they were read.
    waiting: int
    labelled: int
    until_us: int
    places: frozenset[MessagePlace] = frozenset()

    def counts(self, places: frozenset[MessagePlace]) -> tuple[int, int]:
        since = places - self.places
        known = len(self.follow_ups.numbers_of(since))
        return self.waiting - known, self.labelled + known


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
    labelled = len(found.numbers_of(places))
    return QuestionFrame(
        version,
        follow_ups=found,
        waiting=len(found) - int(found.stops().sum()) - labelled,
        labelled=labelled,
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


def questions(frame: QuestionFrame, labels: Sequence[StoredLabel]) -> Iterator[Question]:
    """Yield questions about unlabelled messages: for each undecided one what its request needs."""
    rows, asked = frame.follow_ups, set[int]()
    for drawn, missing in zip(*rows.undecided({each.place: each for each in labels}), strict=True):
        if missing not in asked:
            asked.add(missing)
            [each] = rows.taken(np.array([missing]))
            yield Question(each.place, each.judged, each.checkpoint, bool(drawn == missing))


def next_questions(
    frame: QuestionFrame, labels: Sequence[StoredLabel], again: Sequence[StoredLabel]
) -> Iterator[Question]:
    """Yield what to ask next: a message for the second time where one is due, then all others."""
    if second := repeated_question(labels, {label.place for label in again}):
        yield second
    yield from questions(frame, labels)


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


def label_by_model(
    lake: Lake, tenant: str, frame: QuestionFrame, model: LlmJudge, count: int
) -> tuple[int, Unjudged | None]:
    """Let a language model label the next messages, and return how many, and why it stopped.

    An unreadable answer is stored as unclear."""
    labels = current_labels(lake.database, tenant)
    labelled, gone = 0, set[MessagePlace]()
    while labelled < count:
        open_ = (each for each in questions(frame, labels) if each.place not in gone)
        if (question := next(open_, None)) is None:
            break
        follow_up = follow_up_at(lake, tenant, question.place)
        if follow_up is None:
            gone.add(question.place)
            continue
        [answer] = model.judge([follow_up.message])
        if not isinstance(answer, Judgement) and answer != "unreadable_answer":
            return labelled, answer
        stored = StoredLabel(
            *question.place,
            message=digest_of(follow_up.message),
            label=answer.label if isinstance(answer, Judgement) else UNCLEAR,
            drawn=question.drawn,
            until_us=frame.until_us,
            by=f"llm {model.version}",
            is_model=True,
        )
        add_label(lake.database, tenant, stored, frame.version)
        labels.append(stored)
        labelled += 1
    return labelled, None


# Frames kept between questions: reading and sorting all verdicts takes seconds

_State = tuple[int | None, ...]
_Frames = dict[tuple[str, str, str | None], tuple[_State, QuestionFrame]]
_frames: WeakKeyDictionary[Lake, _Frames] = WeakKeyDictionary()
_frames_lock = threading.Lock()


def kept_frame(
    lake: Lake, version: str, tenant: str, checkpoint: str | None, labels: Sequence[StoredLabel]
) -> QuestionFrame:
    """Return the conversations of the next messages. Raises what queries raise."""
    places = frozenset(label.place for label in labels)
    key, state = (tenant, version, checkpoint), _state_of(lake, tenant, version)
    with _frames_lock:
        frames = _frames.setdefault(lake, {})
        before, frame = frames.get(key, (None, None))
    if frame is None or before != state or len(places ^ frame.places) > _KEPT_MAX // 2:
        whole = read_frame(lake, version, tenant, checkpoint, places)
        undecided, _ = whole.follow_ups.undecided({label.place: label for label in labels})
        first = whole.follow_ups.conversations_of(undecided[:_KEPT_MAX])
        frame = replace(whole, follow_ups=first)
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
