"""The ledger: what came in and what became of it, and whether that adds up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from penstock.eventlog import EventLog
from penstock.events.frames import FrameDecoder
from penstock.ingest.flush import hour_of
from penstock.lake.catalog import CoveredOffset, read_next_offsets
from penstock.lake.commits import LogGap, read_gaps
from penstock.lake.fresh_events import arrivals_of, start_of
from penstock.lake.lake import Lake
from penstock.lake.tables import ledger, segment

_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LedgerRow:
    """Counts of one tenant's source in one hour, by the time of arrival. `waiting` are accepted
    events that are only in the log so far."""

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
    #: Sentences, one for each thing that does not add up.
    discrepancies: list[str]
    #: Accepted ones included.
    gaps: list[LogGap]


def read_ledger(lake: Lake, since_us: int = 0) -> LedgerReport:
    """The ledger from an hour on. Events in the log count as accepted."""
    decoder = arrivals_of(lake.log.partitions, lake.settings)
    stored = _read_stored(lake)
    while True:
        waiting, rejected, overtaken = _count_log(lake.log, decoder, stored.next_offsets)
        if not overtaken:
            break
        before, stored = stored, _read_stored(lake)
        if stored.next_offsets == before.next_offsets:
            break  # the writer did not take the events over: a gap that is not entered yet
    by_key = {(row.tenant, row.source, row.hour): row for row in stored.rows}
    rows = []
    for key in sorted({*by_key, *waiting, *rejected}, key=itemgetter(2, 0, 1)):
        row = by_key.get(key)
        rows.append(
            LedgerRow(
                *key,
                accepted=(row.accepted if row else 0) + waiting[key],
                stored=row.stored if row else 0,
                duplicate=row.duplicate if row else 0,
                rejected=(row.rejected if row else 0) + rejected[key],
                waiting=waiting[key],
            )
        )
    discrepancies = [
        f"{row.source or '(no source)'} at hour {row.hour}: {row.accepted} accepted, but "
        f"{row.stored} stored + {row.duplicate} duplicate + {row.waiting} waiting"
        for row in rows
        if row.accepted != row.stored + row.duplicate + row.waiting
    ]
    total = sum(row.stored for row in rows)
    if total != stored.live_rows:
        segments = f"the segments hold {stored.live_rows} rows"
        discrepancies.append(f"{total} events were stored, but {segments}")
    for gap in stored.gaps:
        if gap.accepted_at is None:
            to = f" to {gap.to_offset}" if gap.to_offset != gap.from_offset else ""
            lost = f"from offset {gap.from_offset}{to} (gap {gap.id})"
            discrepancies.append(f"partition {gap.partition} has a gap {lost}: {gap.reason}")
    hour_min = hour_of(since_us)
    return LedgerReport([row for row in rows if row.hour >= hour_min], discrepancies, stored.gaps)


@dataclass(frozen=True)
class _StoredLedger:
    """What the database says, at one moment."""

    rows: Sequence[sa.Row[Any]]
    live_rows: int
    gaps: list[LogGap]
    next_offsets: dict[int, CoveredOffset]


def _read_stored(lake: Lake) -> _StoredLedger:
    keys = (ledger.c.tenant, ledger.c.source, ledger.c.hour)
    names = ("accepted", "stored", "duplicate", "rejected")
    sums = [sa.func.sum(ledger.c[name]).label(name) for name in names]
    live = sa.select(sa.func.sum(segment.c.rows)).where(segment.c.removed_snap.is_(None))
    with lake.database.read() as connection:
        return _StoredLedger(
            rows=connection.execute(sa.select(*keys, *sums).group_by(*keys)).all(),
            live_rows=int(connection.execute(live).scalar() or 0),
            gaps=read_gaps(connection),
            next_offsets=read_next_offsets(connection),
        )


_Key = tuple[str, str, int]


def _count_log(
    log: EventLog, decoder: FrameDecoder, next_offsets: dict[int, CoveredOffset]
) -> tuple[Counter[_Key], Counter[_Key], bool]:
    """The events and the rejected lines in the log beyond the lake; and whether the log let go
    of some of them meanwhile."""
    events: Counter[_Key] = Counter()
    rejected: Counter[_Key] = Counter()
    overtaken = False
    for partition in range(log.partitions):
        offset = start = start_of(log, partition, next_offsets)
        while entries := log.read(partition, offset, _READ_BYTES):
            values = (value for entry in entries for value in entry.values)
            for header in (frame.header for value in values for frame in decoder.frames(value)):
                counter = events if header.kind == "events" else rejected
                for source, count in header.counts.items():
                    counter[header.tenant, source, hour_of(header.received_us)] += count
            offset = entries[-1].next_offset
        overtaken = overtaken or log.bounds(partition).first > start
    return events, rejected, overtaken
