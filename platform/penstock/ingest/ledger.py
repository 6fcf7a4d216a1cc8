"""The ledger: what arrived, what became of it, and whether it adds up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec
import sqlalchemy as sa

from penstock.backends.database.engine import clock_us, now_us
from penstock.backends.eventlog.log import EventLog
from penstock.events.frames import FrameDecoder, FrameHeader
from penstock.ingest.flush import hour_of, wait_seconds
from penstock.ingest.settings import IngestSettings
from penstock.lake.catalog import CoveredOffset, read_next_offsets
from penstock.lake.commits import LogGap, read_gaps
from penstock.lake.lake import Lake
from penstock.lake.query.fresh_events import frame_decoder, start_of
from penstock.lake.tables import ledger, log_partition, segment

_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LedgerRow:
    """Counts of a tenant's source in one hour; `waiting` events are only in the log so far."""

    tenant: str
    source: str
    hour: int
    accepted: int
    stored: int
    duplicate: int
    rejected: int
    waiting: int
    erased: int = 0
    #: Dropped by recorders without room; not among the accepted.
    dropped: int = 0


@dataclass(frozen=True)
class WaitingEvents:
    """Events that are only in the log."""

    events: int
    #: Arrival of the oldest, in microseconds.
    since_at: int
    why: str


class LedgerReport(msgspec.Struct, frozen=True):
    rows: list[LedgerRow]
    #: One sentence for each thing that does not add up.
    discrepancies: list[str]
    #: Including accepted gaps.
    gaps: list[LogGap]
    waiting: WaitingEvents | None = None


_Key = tuple[str, str, int]
_STORED = ("accepted", "stored", "duplicate", "rejected", "erased", "dropped")
_COUNTS = ("accepted", "stored", "duplicate", "rejected", "waiting", *_STORED[4:])


def read_ledger(lake: Lake, since_us: int = 0, *, tenant: str | None = None) -> LedgerReport:
    """Read the ledger of all tenants or of one. Events in the log count as accepted."""
    decoder = frame_decoder(lake)
    overtaken, before = True, None
    while overtaken:
        sums, live_rows, gaps, next_offsets = _read_stored(lake)
        if next_offsets == before:
            break  # a gap that the writer has not entered yet
        arrivals = _count_log(lake.log, decoder, next_offsets)
        overtaken = arrivals.overtaken
        before = next_offsets
    counts: dict[str, Counter[_Key]] = {
        name: Counter({(row.tenant, row.source, row.hour): getattr(row, name) or 0 for row in sums})
        for name in _STORED
    }
    counts["accepted"].update(arrivals.events)
    counts["rejected"].update(arrivals.rejected)
    counts["waiting"] = arrivals.events
    keys = sorted({*counts["accepted"], *counts["rejected"]}, key=itemgetter(2, 0, 1))
    rows = [LedgerRow(*key, *(counts[name][key] for name in _COUNTS)) for key in keys]
    whole = counts["stored"].total()
    if tenant is not None:
        rows = [row for row in rows if row.tenant == tenant]
    discrepancies = [
        f"{row.source or '(no source)'} at hour {row.hour}: {row.accepted} accepted, but "
        f"{row.stored} stored + {row.duplicate} duplicate + {row.waiting} waiting"
        f"{f' + {row.erased} erased' if row.erased else ''}"
        for row in rows
        if row.accepted != row.stored + row.duplicate + row.waiting + row.erased
    ]
    if whole != live_rows:
        differ = f"{whole} events were stored, but the segments hold {live_rows} rows"
        # A tenant must not see the number of others' events.
        several = "the segments do not hold as many rows as events were stored"
        discrepancies.append(differ if tenant is None else several)
    for gap in gaps:
        if gap.accepted_at is None:
            to = f" to {gap.to_offset}" if gap.to_offset != gap.from_offset else ""
            lost = f"from offset {gap.from_offset}{to} (gap {gap.id})"
            discrepancies.append(f"partition {gap.partition} has a gap {lost}: {gap.reason}")
    hour_min = hour_of(since_us)
    rows = [row for row in rows if row.hour >= hour_min]
    since = [at for whose, at in arrivals.oldest_us.items() if tenant in (None, whose)]
    events = sum(row.waiting for row in rows)
    held_up = (
        WaitingEvents(events, min(since), _why(lake, min(since), len(arrivals.oldest_us)))
        if events and since
        else None
    )
    return LedgerReport(rows, discrepancies, gaps, held_up)


#: A healthy writer is never later than this.
_LATE_SECONDS = 10


def _why(lake: Lake, since_us: int, tenants: int) -> str:
    flush_s = wait_seconds(lake.settings.room(IngestSettings), tenants)
    holds = sa.select(sa.func.count()).where(
        log_partition.c.lease_until >= now_us(), log_partition.c.owner.is_not(None)
    )
    with lake.database.read() as connection:
        writers = connection.execute(holds).scalar_one()
        age_s = (clock_us(connection) - since_us) / 1_000_000
    if not writers:
        return "no writer is running: `penstock serve` or the next import stores them"
    if age_s < flush_s + _LATE_SECONDS:
        return f"a writer gathers events for up to {flush_s:g} s before it stores them"
    return "a writer is running, but stored none of them: see /readyz and its log"


def _read_stored(
    lake: Lake,
) -> tuple[Sequence[sa.Row[Any]], int, list[LogGap], dict[int, CoveredOffset]]:
    """The sums of the ledger, the rows of live segments, the gaps, and what the lake covers."""
    keys = (ledger.c.tenant, ledger.c.source, ledger.c.hour)
    sums = [sa.func.coalesce(sa.func.sum(ledger.c[name]), 0).label(name) for name in _STORED]
    live = sa.select(sa.func.sum(segment.c.rows)).where(segment.c.removed_snap.is_(None))
    with lake.database.read() as connection:
        rows = connection.execute(sa.select(*keys, *sums).group_by(*keys)).all()
        live_rows = int(connection.execute(live).scalar() or 0)
        return rows, live_rows, read_gaps(connection), read_next_offsets(connection)


@dataclass
class _Arrivals:
    """Events of the log that the lake does not cover."""

    events: Counter[_Key] = field(default_factory=Counter)
    rejected: Counter[_Key] = field(default_factory=Counter)
    #: Arrival of each tenant's oldest events.
    oldest_us: dict[str, int] = field(default_factory=dict)
    #: Whether the log deleted some meanwhile.
    overtaken: bool = False

    def add(self, header: FrameHeader) -> None:
        tenant, hour = header.tenant, hour_of(header.received_us)
        if header.kind == "events":
            known_us = self.oldest_us.get(tenant, header.received_us)
            self.oldest_us[tenant] = min(known_us, header.received_us)
        counter = self.events if header.kind == "events" else self.rejected
        counter.update({(tenant, source, hour): n for source, n in header.counts.items()})


def _count_log(
    log: EventLog, decoder: FrameDecoder, next_offsets: dict[int, CoveredOffset]
) -> _Arrivals:
    arrivals = _Arrivals()
    for partition in range(log.partitions):
        offset = start = start_of(log, partition, next_offsets, None)
        covered = next_offsets.get(partition)
        ahead = covered.ahead if covered is not None and covered.log_id == log.id else {}
        while entries := log.read(partition, offset, _READ_BYTES):
            for entry in entries:
                for frame in (frame for value in entry.values for frame in decoder.frames(value)):
                    if entry.offset >= ahead.get(frame.header.tenant, 0):
                        arrivals.add(frame.header)
            offset = entries[-1].next_offset
        arrivals.overtaken = arrivals.overtaken or log.bounds(partition).first > start
    return arrivals
