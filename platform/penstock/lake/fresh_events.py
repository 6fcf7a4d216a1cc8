"""Events that are in the log but in no segment yet, as rows that a query can see."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.eventlog import EventLog
from penstock.eventlog.settings import EventLogSettings
from penstock.events.arrivals import Arrivals
from penstock.events.packing import REJECTED_LINE_BYTES_MAX
from penstock.lake.catalog import ConsentChange, Covered
from penstock.lake.duplicates import KnownEvents, tell_new
from penstock.lake.rows import EVENT_ROWS, Decoded, RowGroupLimits
from penstock.settings import Settings


@dataclass(frozen=True)
class Fresh:
    rows: pa.Table
    consents: tuple[ConsentChange, ...]
    #: The newest events are missing: the log holds more than a query may read.
    cut_off: bool
    #: The log let go of what the lake took over meanwhile: pin the lake again.
    overtaken: bool


_IN_ONE_PIECE = RowGroupLimits(rows_max=2**62, bytes_max=2**30)
NOTHING_FRESH = Fresh(EVENT_ROWS.empty_table(), (), cut_off=False, overtaken=False)


def arrivals_of(partitions: int, settings: Settings) -> Arrivals:
    """How the values of a log of so many partitions are read."""
    return Arrivals(
        partitions,
        settings.room(EventLogSettings).event_bytes_max,
        REJECTED_LINE_BYTES_MAX,
    )


def read_fresh(
    log: EventLog,
    arrivals: Arrivals,
    *,
    next_offsets: Mapping[int, Covered],
    known: KnownEvents,
    snap: int,
    bytes_max: int,
) -> Fresh:
    """What the log holds beyond `snap`, without what the lake has already."""
    decoded = Decoded()
    left, overtaken = bytes_max, False
    for partition in range(log.partitions):
        start = start_of(log, partition, next_offsets)
        left -= _decode(_entries(log, partition, start, left), arrivals, decoded)
        overtaken = overtaken or log.bounds(partition).first > start
    cut_off = left <= 0
    if not decoded.events:
        return Fresh(NOTHING_FRESH.rows, (), cut_off, overtaken)
    told = tell_new(decoded, known.recall(set(decoded.sessions), snap))
    changes = (ConsentChange(*session, consent) for session, consent in told.stricter.items())
    tables = decoded.to_tables(told.new, told.consents, _IN_ONE_PIECE)
    rows = pa.concat_tables([NOTHING_FRESH.rows, *tables])
    return Fresh(rows, tuple(changes), cut_off, overtaken)


def start_of(log: EventLog, partition: int, next_offsets: Mapping[int, Covered]) -> int:
    """Where what the lake does not cover begins. After reading on from there see whether the
    log's `first` has moved beyond it: then the lake covers more by now, and the log let go."""
    covered = next_offsets.get(partition)
    if covered is None or covered.log_id != log.id:
        return log.bounds(partition).first
    return covered.next_offset


def _entries(log: EventLog, partition: int, start: int, bytes_max: int) -> Iterable[bytes]:
    while bytes_max > 0 and (entries := log.read(partition, start, min(bytes_max, 1 << 22))):
        for entry in entries:
            yield from entry.values
            bytes_max -= sum(map(len, entry.values))
        start = entries[-1].next_offset


def _decode(values: Iterable[bytes], arrivals: Arrivals, decoded: Decoded) -> int:
    size = 0
    for value in values:
        size += len(value)
        for frame in arrivals.frames(value):
            if frame.header.kind == "events":
                decoded.add(frame)
    return size
