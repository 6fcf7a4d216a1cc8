"""The messages that people are asked about next, kept between questions: to choose them, all that a
judge said of a lake is read and put in order."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.labels import MessagePlace, by_people, current_labels
from penstock_jobs.rewards.followups.questions import QuestionOrders, read_frame
from penstock_jobs.rewards.tables import reward_file

#: Of each order; when half of them have a label they are put in order anew.
_KEPT_MAX = 1_000
#: Tenants, definitions and checkpoints that somebody labels at the same time.
_QUEUES_MAX = 20


class _Key(NamedTuple):
    tenant: str
    version: str
    checkpoint: str | None


@dataclass(frozen=True)
class KeptQuestions:
    """The first of each order, of so many `messages` of which so many were `labelled`."""

    orders: QuestionOrders
    checkpoints: dict[MessagePlace, str | None]
    messages: int
    labelled: int
    until_us: int
    #: Of people, when they were put in order.
    labels: frozenset[MessagePlace]
    #: Of the rewards that they were chosen by.
    state: tuple[int | None, ...]

    def labelled_now(self, places: frozenset[MessagePlace]) -> int:
        """With those of the kept messages that have a label since."""
        return self.labelled + sum(place in self.checkpoints for place in places - self.labels)


class QuestionMemory:
    """Of one lake. Safe to share between threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, KeptQuestions] = OrderedDict()
        self._lock = threading.Lock()

    def questions(
        self, lake: Lake, tenant: str, version: str, checkpoint: str | None
    ) -> tuple[KeptQuestions, frozenset[MessagePlace]]:
        """As the rewards are now, and the messages that people labelled. Raises what queries
        raise."""
        key = _Key(tenant, version, checkpoint)
        state = _state_of(lake.database, tenant, version)
        labels = by_people(current_labels(lake.database, tenant))
        places = frozenset(label.place for label in labels)
        with self._lock:
            kept = self._kept.get(key)
        changes = len(places ^ kept.labels) if kept is not None else 0
        if kept is None or kept.state != state or changes > _KEPT_MAX // 2:
            kept = _chosen(lake, key, places, state)
            with self._lock:
                self._kept[key] = kept
                while len(self._kept) > _QUEUES_MAX:
                    self._kept.popitem(last=False)
        return kept, places


def _chosen(
    lake: Lake, key: _Key, places: frozenset[MessagePlace], state: tuple[int | None, ...]
) -> KeptQuestions:
    frame = read_frame(lake, key.version, key.tenant, key.checkpoint, None)
    orders = QuestionOrders.of(frame, places)
    first = QuestionOrders(orders.drawn.first(_KEPT_MAX), orders.chosen.first(_KEPT_MAX))
    return KeptQuestions(
        orders=first,
        checkpoints={each.place: each.checkpoint for each in (*first.drawn, *first.chosen)},
        messages=len(frame.follow_ups),
        labelled=len(frame.follow_ups) - len(orders.drawn),
        until_us=frame.until_us,
        labels=places,
        state=state,
    )


def _state_of(database: Database, tenant: str, version: str) -> tuple[int | None, ...]:
    """Another one whenever rewards of this definition came or went."""
    files = reward_file.c
    changes = sa.select(
        sa.func.count(), sa.func.max(files.added_snap), sa.func.max(files.removed_snap)
    )
    mine = (files.definition_version == version) & (
        (files.tenant == tenant) | files.tenant.is_(None)
    )
    with database.read() as connection:
        return tuple(connection.execute(changes.where(mine)).one())


_memories: WeakKeyDictionary[Lake, QuestionMemory] = WeakKeyDictionary()


def memory_of(lake: Lake) -> QuestionMemory:
    """The one of this lake, for as long as it is open."""
    return _memories.setdefault(lake, QuestionMemory())
