"""A lake that a test drives by hand: no server, no threads, and a clock that the test moves."""

import atexit
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.parquet as pq

from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.metrics import Metrics
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.ingest.gateway import Acceptance, Acceptor
from penstock.ingest.partition_writer import PartitionWriter, WriterParts
from penstock.ingest.writer import Writer
from penstock.lake.catalog import Segment, current
from penstock.lake.commits import agree_on_shape
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.upkeep.merges import summarise_new
from tests.support.manual_clock import ManualClock

Event = dict[str, Any]

#: 21 November 2026, 00:00 UTC: what `make_event` counts from.
START_US = 1_795_219_200_000_000


def make_event(session: str, number: int, kind: str = "user_message", **fields: Any) -> Event:
    """An event, `number` seconds after START_US. A field that is None is left out."""
    event = {
        "session_id": session,
        "seq": number,
        "ts": START_US + number * 1_000_000,
        "type": kind,
        "event_id": f"e{number}",
        "source": "by-hand",
        "payload": {"text": f"message {number}"} if kind == "user_message" else {},
    } | fields
    return {name: value for name, value in event.items() if value is not None}


def body_of(events: Iterable[Event]) -> bytes:
    """NDJSON."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def files_of(segments: Iterable[Segment]) -> set[str]:
    """The names of segments, and of the files of sessions that are beside them."""
    live = list(segments)
    return {
        *(stored.name for stored in live),
        *(sessions_name(stored.name) for stored in live if stored.summarised),
    }


@dataclass
class HandLake:
    """A lake in a directory of its own."""

    lake: Lake
    clock: ManualClock = field(default_factory=ManualClock)
    metrics: Metrics = field(default_factory=Metrics)

    def writer(self, crash_point: Callable[[str], None] = lambda _point: None) -> Writer:
        return Writer(WriterParts(self.lake, self.clock, self.metrics, crash_point))

    def partition_writer(
        self,
        owner: str,
        crash_point: Callable[[str], None] = lambda _point: None,
        database: Database | None = None,
    ) -> PartitionWriter:
        """The writer of the first partition alone."""
        log = self.lake.log  # open before the lake is copied
        lake = copy(self.lake)
        lake.database = database or lake.database
        parts = WriterParts(lake, self.clock, self.metrics, crash_point, owner)
        return PartitionWriter(parts, 0, agree_on_shape(lake.database, log.id, log.partitions))

    def send(self, events: Iterable[Event] | bytes, tenant: str = TENANT_DEFAULT) -> Acceptance:
        """Judge a body and put it into the log, as the gateway does."""
        body = events if isinstance(events, bytes) else body_of(events)
        acceptor = Acceptor(tenant, self.lake.settings, self.lake.log, self.lake.redactor)
        whole = Acceptance()
        for piece in acceptor.accept([body], self.clock.now_us()):
            whole.add(piece)
        if whole.values:
            self.lake.log.append(whole.values)
        return whole

    def store(self, events: Iterable[Event] | bytes = b"", tenant: str = TENANT_DEFAULT) -> None:
        """Send, and take all that the log holds into the lake with a writer that is new."""
        self.send(events, tenant)
        self.writer().drain()

    def summarise(self) -> None:
        """Put files of sessions beside new segments, as upkeep does."""
        summarise_new(self.lake, self.metrics)

    def rows(self, sql: str, as_of: str | None = None, tenant: str = TENANT_DEFAULT) -> list[Event]:
        found: list[Event] = self.lake.query(sql, as_of=as_of, tenant=tenant).arrow().to_pylist()
        return found

    def stored(self) -> Counter[tuple[str, str, str | None]]:
        """How often the live segments hold each (tenant, session, event_id), past all views."""
        found: Counter[tuple[str, str, str | None]] = Counter()
        for one in current(self.lake.database).segments:
            with self.lake.store.open(one.name) as source:
                table = pq.read_table(source, columns=["tenant", "session_id", "event_id"])
            found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return found

    def files(self) -> set[str]:
        return {found.name for found in self.lake.store.list("events")}


@contextmanager
def hand_lake(data: Path, **limits: object) -> Iterator[HandLake]:
    """A lake at `data`, made if there is none; `limits` are settings."""
    lake = open_by_hand(data, **limits)
    try:
        yield lake
    finally:
        lake.lake.close()


def open_by_hand(data: Path, **limits: object) -> HandLake:
    settings = load_settings(data, {}, {"disk_reserve_bytes": 0, **limits})
    data.mkdir(0o700, parents=True, exist_ok=True)
    file = data / "penstock.db"
    if settings.database_url == f"sqlite:///{file}" and not file.exists():
        shutil.copy(empty_database(), file)
    return HandLake(Lake(settings))


@cache
def empty_database() -> Path:
    """An SQLite database with the newest tables, to be copied: made once a process, not once a
    test."""
    path = Path(mkdtemp(prefix="penstock-")) / "penstock.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path
