"""The ledger: what came in and what became of it, and whether that adds up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from penstock.eventlog import EventLog
from penstock.events.arrivals import Arrivals
from penstock.events.frames import Header
from penstock.ingest.flush import HOUR_US
from penstock.lake.catalog import Covered, read_next_offsets
from penstock.lake.fresh_events import arrivals_of, start_of
from penstock.lake.lake import Lake
from penstock.lake.partitions import Gap, read_gaps
from penstock.lake.tables import ledger, segment

_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LedgerRow:
    """Counts of one tenant's source in one hour, by the time of arrival. `waiting` are accepted
    events that only the log holds yet."""

    tenant: str
    source: str
    hour: int
    accepted: int
    stored: int
    duplicate: int
    rejected: int
    waiting: int


@dataclass(frozen=True)
class LedgerReport:
    rows: list[LedgerRow]
    #: Sentences, each something that does not add up.
    discrepancies: list[str]
    #: Those that somebody accepted included.
    gaps: list[Gap]


def read_ledger(lake: Lake, since_us: int = 0) -> LedgerReport:
    """The ledger from an hour on. What is in the log is counted in it as accepted."""
    hour_min = since_us - since_us % HOUR_US
    arrivals = arrivals_of(lake.log.partitions, lake.settings)
    counted = _count(lake)
    while True:
        events, refused, overtaken = _waiting(lake.log, arrivals, counted.next_offsets)
        if not overtaken:
            break
        before, counted = counted, _count(lake)
        if counted.next_offsets == before.next_offsets:
            break  # not the writer took it over: it is lost, and not entered as a gap yet
    stored = {(row.tenant, row.source, row.hour): row for row in counted.rows}
    keys_found = sorted({*stored, *events, *refused}, key=itemgetter(2, 0, 1))
    rows = [_row(key, stored.get(key), events[key], refused[key]) for key in keys_found]
    discrepancies = _discrepancies(rows, counted.live_rows)
    discrepancies += [_sentence(gap) for gap in counted.gaps if gap.accepted_at is None]
    shown = [row for row in rows if row.hour >= hour_min]
    return LedgerReport(shown, discrepancies, counted.gaps)


@dataclass(frozen=True)
class _Counted:
    """What the database says, all of one moment."""

    rows: Sequence[sa.Row[Any]]
    live_rows: int
    gaps: list[Gap]
    next_offsets: dict[int, Covered]


def _count(lake: Lake) -> _Counted:
    keys = (ledger.c.tenant, ledger.c.source, ledger.c.hour)
    names = ("accepted", "stored", "duplicate", "rejected")
    sums = [sa.func.sum(ledger.c[name]).label(name) for name in names]
    live = sa.select(sa.func.sum(segment.c.rows)).where(segment.c.removed_snap.is_(None))
    with lake.database.read() as connection:
        return _Counted(
            rows=connection.execute(sa.select(*keys, *sums).group_by(*keys)).all(),
            live_rows=int(connection.execute(live).scalar() or 0),
            gaps=read_gaps(connection),
            next_offsets=read_next_offsets(connection),
        )


_Key = tuple[str, str, int]


def _row(key: _Key, stored: sa.Row[Any] | None, waiting: int, waiting_rejected: int) -> LedgerRow:
    """What the lake counted, and what the log holds beyond it."""
    return LedgerRow(
        *key,
        accepted=(stored.accepted if stored else 0) + waiting,
        stored=stored.stored if stored else 0,
        duplicate=stored.duplicate if stored else 0,
        rejected=(stored.rejected if stored else 0) + waiting_rejected,
        waiting=waiting,
    )


def _sentence(gap: Gap) -> str:
    lost = f"from offset {gap.from_offset} to {gap.to_offset}"
    if gap.to_offset == gap.from_offset:
        lost = f"from offset {gap.from_offset}"
    return f"partition {gap.partition} has a gap {lost} (gap {gap.id}): {gap.reason}"


def _waiting(
    log: EventLog, arrivals: Arrivals, next_offsets: dict[int, Covered]
) -> tuple[Counter[_Key], Counter[_Key], bool]:
    """Counts of what lies in the log beyond the lake: events, and refused lines. And whether
    the log let go of some of it meanwhile."""
    events: Counter[_Key] = Counter()
    overtaken = False
    refused: Counter[_Key] = Counter()
    for partition in range(log.partitions):
        offset = start = start_of(log, partition, next_offsets)
        while entries := log.read(partition, offset, _READ_BYTES):
            for entry in entries:
                for value in entry.values:
                    for frame in arrivals.frames(value):
                        counter = events if frame.header.kind == "events" else refused
                        counter.update(_counts(frame.header))
            offset = entries[-1].next_offset
        overtaken = overtaken or log.bounds(partition).first > start
    return events, refused, overtaken


def _counts(header: Header) -> dict[_Key, int]:
    hour = header.received_us - header.received_us % HOUR_US
    return {(header.tenant, source, hour): count for source, count in header.counts.items()}


def _discrepancies(rows: list[LedgerRow], live_rows: int) -> list[str]:
    found = [
        f"{row.source or '(no source)'} at hour {row.hour}: {row.accepted} accepted, but "
        f"{row.stored} stored + {row.duplicate} duplicate + {row.waiting} waiting"
        for row in rows
        if row.accepted != row.stored + row.duplicate + row.waiting
    ]
    stored = sum(row.stored for row in rows)
    if stored != live_rows:
        found.append(f"{stored} events were stored, but the segments hold {live_rows} rows")
    return found
