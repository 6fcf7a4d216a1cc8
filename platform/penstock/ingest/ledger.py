"""The ledger: what came in and what became of it, and whether that adds up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from penstock.database.tables import ledger, log_gap, segment
from penstock.eventlog import EventLog
from penstock.events.frames import decode_frame
from penstock.ingest.flush import HOUR_US
from penstock.lake.catalog import Covered, read_next_offsets
from penstock.lake.fresh import start_of
from penstock.lake.lake import Lake

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


def read_ledger(lake: Lake, since_us: int = 0) -> LedgerReport:
    """The ledger from an hour on. What is in the log is counted in it as accepted."""
    hour_min = since_us - since_us % HOUR_US
    while True:  # again where the writer took over what was about to be read from the log
        counted = _count(lake)
        waiting = _waiting(lake.log, counted.next_offsets)
        if waiting is not None:
            break
    events, refused = waiting
    stored = {(row.tenant, row.source, row.hour): row for row in counted.rows}
    keys_found = sorted({*stored, *events, *refused}, key=itemgetter(2, 0, 1))
    rows = [_row(key, stored.get(key), events[key], refused[key]) for key in keys_found]
    discrepancies = _discrepancies(rows, counted.live_rows)
    discrepancies += [
        f"partition {gap.partition} has a gap from offset {gap.from_offset}: {gap.reason}"
        for gap in counted.gaps
    ]
    return LedgerReport([row for row in rows if row.hour >= hour_min], discrepancies)


@dataclass(frozen=True)
class _Counted:
    """What the database says, all of one moment."""

    rows: Sequence[sa.Row[Any]]
    live_rows: int
    gaps: Sequence[sa.Row[Any]]
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
            gaps=connection.execute(sa.select(log_gap).order_by(log_gap.c.id)).all(),
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


def _waiting(
    log: EventLog, next_offsets: dict[int, Covered]
) -> tuple[Counter[_Key], Counter[_Key]] | None:
    """Counts of what lies in the log beyond the lake: events, and refused lines. None when the
    log let go of some of it meanwhile."""
    events: Counter[_Key] = Counter()
    refused: Counter[_Key] = Counter()
    for partition in range(log.partitions):
        offset = start = start_of(log, partition, next_offsets)
        while entries := log.read(partition, offset, _READ_BYTES):
            for entry in entries:
                for value in entry.values:
                    header = decode_frame(value).header
                    counter = events if header.kind == "events" else refused
                    hour = header.received_us - header.received_us % HOUR_US
                    for source, count in header.counts.items():
                        counter[header.tenant, source, hour] += count
            offset = entries[-1].next_offset
        if log.bounds(partition).first > start:
            return None
    return events, refused


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
