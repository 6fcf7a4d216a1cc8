"""Appends, merges, readers and collection in any order, against a model of sets.

A named snapshot keeps its rows for ever, a reader never loses a file, collection deletes nothing
that either needs, and a moment in time is read as it was, or refused.
"""

import datetime as dt
import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from penstock.backends.database.engine import now_us
from penstock.ingest.ledger import read_ledger
from penstock.lake import HistoryRemoved, SnapshotUnknown
from penstock.lake.catalog import Pin, create_snapshot, current, drop_snapshot, pinned
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import files_of, make_event, open_by_hand

Ids = frozenset[str]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class History(RuleBasedStateMachine):
    snapshots: Bundle[str] = Bundle("snapshots")
    moments: Bundle[tuple[str, Ids]] = Bundle("moments")
    readers: Bundle[int] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.data = Path(mkdtemp(prefix="penstock-"))
        self.lake = open_by_hand(self.data)
        self.database = self.lake.lake.database
        self.written = 0
        self.now: Ids = frozenset()
        self.named: dict[str, Ids] = {}
        self.reading: dict[int, tuple[ExitStack, Pin, Ids]] = {}

    def teardown(self) -> None:
        for leases, _, _ in self.reading.values():
            leases.close()
        for name in self.named:
            drop_snapshot(self.database, name)
        for _ in range(2):
            collect(self.lake.lake, grace_s=0)
        assert self.lake.files() == files_of(current(self.database).segments)
        assert verify(self.lake.lake).findings == []
        assert read_ledger(self.lake.lake).discrepancies == []
        self.lake.lake.close()
        shutil.rmtree(self.data)

    @rule(count=st.integers(1, 4), again=st.booleans())
    def append(self, count: int, again: bool) -> None:
        first = max(0, self.written - 2) if again else self.written
        events = [make_event(f"s{n % 3}", n) for n in range(first, self.written + count)]
        self.lake.store(events)
        self.now |= {event["event_id"] for event in events}
        self.written += count

    @rule(start=st.integers(0, 5), count=st.integers(2, 5))
    def merge(self, start: int, count: int) -> None:
        group = current(self.database).segments[start : start + count]
        if len(group) >= 2:
            merge(self.lake.lake, group)

    @rule()
    def collect(self) -> None:
        collect(self.lake.lake, grace_s=0)

    @rule(target=snapshots)
    def name(self) -> str:
        name = f"snapshot-{len(self.named)}-{self.written}-{self.tick()}"
        create_snapshot(self.database, name)
        self.named[name] = self.now
        return name

    @rule(name=consumes(snapshots))
    def drop(self, name: str) -> None:
        drop_snapshot(self.database, name)
        del self.named[name]
        with pytest.raises(SnapshotUnknown):
            self.ids_as_of(name)

    @rule(name=snapshots)
    def read_named(self, name: str) -> None:
        assert self.ids_as_of(name) == self.named[name]

    @rule(target=readers)
    def begin_reading(self) -> int:
        leases = ExitStack()
        pin = leases.enter_context(pinned(self.database, None, lease_s=600))
        number = max(self.reading, default=0) + 1
        self.reading[number] = leases, pin, self.now
        return number

    @rule(number=consumes(readers))
    def end_reading(self, number: int) -> None:
        leases, pin, expected = self.reading.pop(number)
        assert self.ids_in(pin) == expected
        leases.close()

    @rule(target=moments)
    def remember(self) -> tuple[str, Ids]:
        moment = EPOCH + dt.timedelta(microseconds=self.tick())
        return moment.isoformat(), self.now

    @rule(moment=moments)
    def read_moment(self, moment: tuple[str, Ids]) -> None:
        when, expected = moment
        try:
            assert self.ids_as_of(when) == expected
        except HistoryRemoved:
            assert self.ids_as_of(None) == self.now

    @invariant()
    def what_is_held_is_there(self) -> None:
        for _, pin, expected in self.reading.values():
            assert self.ids_in(pin) == expected
        for name, expected in self.named.items():
            assert self.ids_as_of(name) == expected
        assert self.ids_as_of(None) == self.now
        assert set(self.lake.stored().values()) <= {1}

    def ids_as_of(self, as_of: str | None) -> Ids:
        with pinned(self.database, as_of, lease_s=600) as pin:
            return self.ids_in(pin)

    def ids_in(self, pin: Pin) -> Ids:
        found: list[str] = []
        for one in pin.segments:
            with self.lake.lake.store.open(one.name) as source:
                found += pq.read_table(source, columns=["event_id"])["event_id"].to_pylist()
        assert len(found) == len(set(found))
        return frozenset(found)

    def tick(self) -> int:
        """The database's time; what comes later happens at a later one."""
        with self.database.read() as connection:
            clock = sa.select(now_us())
            moment = int(connection.execute(clock).scalar_one())
            while int(connection.execute(clock).scalar_one()) == moment:
                pass
        return moment


def test_any_order_keeps_what_is_held() -> None:
    run(examples=10, steps=15)


def run(examples: int, steps: int) -> None:
    quiet = list(HealthCheck)
    long = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=quiet)
    run_state_machine_as_test(History, settings=long)
