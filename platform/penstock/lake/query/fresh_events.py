"""Fresh events, which are in the log but in no segment yet, as rows for queries."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from penstock.backends.eventlog.log import EventLog, EventLogSettings, OffsetBounds
from penstock.core.room import rooms
from penstock.events.frames import REJECTED_LINE_BYTES_MAX, FrameDecoder, tenant_of
from penstock.events.redaction import SourceRule
from penstock.events.validation import Rejection
from penstock.lake.catalog import CoveredOffset, Pin
from penstock.lake.duplicates import KnownEvents, find_new
from penstock.lake.lake_parts import LakeParts
from penstock.lake.query.waiting_index import READ_BYTES, Run
from penstock.lake.rows import EVENT_ROWS, DecodedEvents, RowGroupLimits


@dataclass(frozen=True)
class FreshEvents:
    rows: pa.Table
    consents: dict[tuple[str, str], str]
    #: Whether the newest events are missing: the log holds more than a query may read.
    cut_off: bool
    #: Whether the log removed events that the lake has by now: pin the lake again.
    overtaken: bool


#: Takes a tenant and its matches of redaction rules.
CountRedactions = Callable[[str, Mapping[SourceRule, int]], None]
#: Finds the positions of decoded events that no query may see.
Withhold = Callable[[LakeParts, DecodedEvents], Collection[int]]

_NO_END = 2**63
#: How many times the bytes of its own events a query may read past in the log.
_PASSED_OVER_TIMES = 4
_IN_ONE_PIECE = RowGroupLimits(rows_max=2**62, bytes_max=2**30)
NOTHING_FRESH = FreshEvents(EVENT_ROWS.empty_table(), {}, cut_off=False, overtaken=False)


def frame_decoder(
    lake: LakeParts,
    partitions: int | None = None,
    count: CountRedactions = lambda _tenant, _matches: None,
) -> FrameDecoder:
    """Make a decoder of the log's values. Lines that came past a gateway are redacted here. A
    caller that places sessions names the number of partitions that all writers agreed on."""
    bytes_max = lake.settings.room(EventLogSettings).event_bytes_max

    def redact(lines: list[bytes], tenant: str) -> tuple[list[bytes], list[Rejection]]:
        redacted = lake.redactor.redact(lines, tenant, bytes_max)
        count(tenant, redacted.matches)
        return redacted.lines, redacted.refused

    known = lake.log.partitions if partitions is None else partitions
    return FrameDecoder(known, bytes_max, REJECTED_LINE_BYTES_MAX, redact)


def without_withheld(lake: LakeParts, decoded: DecodedEvents) -> DecodedEvents:
    """Leave out events that rooms above withhold, such as erased events that came again. The writer
    will drop them, but a query may come sooner."""
    withheld = {position for withhold in _withholds() for position in withhold(lake, decoded)}
    if not withheld:
        return decoded
    return decoded.chosen([at for at in range(len(decoded.events)) if at not in withheld])


@cache
def _withholds() -> list[Withhold]:
    return [withhold for room in rooms() for withhold in room.withheld()]


def read_fresh(lake: LakeParts, pin: Pin, tenant: str, bytes_max: int) -> FreshEvents:
    """Read a tenant's events in the log beyond the pinned lake. A process indexes the log once;
    later queries read only where the tenant's events wait."""
    log, arrivals, decoded = lake.log, frame_decoder(lake), DecodedEvents()
    left, unread, overtaken = bytes_max, _PASSED_OVER_TIMES * bytes_max, False
    for partition in range(log.partitions):
        start = start_of(log, partition, pin.next_offsets, tenant)
        covered = start_of(log, partition, pin.next_offsets, None)
        waiting = lake.waiting_index.runs(
            log, partition, tenant, covered=covered, unread_max=max(unread, 0)
        )
        runs, looked = waiting or ([Run(start, _NO_END, READ_BYTES)], 0)
        unread -= looked
        for value in _values_of(log, partition, runs, start):
            if left <= 0 or (waiting is None and unread <= 0):
                break
            if waiting is None:
                unread -= len(value)
            if tenant_of(value) == tenant:
                for frame in arrivals.frames(value):
                    if frame.header.kind == "events":
                        left -= len(frame.body)
                        decoded.add(frame)
        overtaken = overtaken or log.bounds(partition).first > start
    cut_off = min(left, unread) <= 0
    if decoded.events:
        decoded = without_withheld(lake, decoded)
    if not decoded.events:
        return FreshEvents(NOTHING_FRESH.rows, {}, cut_off, overtaken)
    known = KnownEvents(lake, bytes_max=bytes_max).recall(set(decoded.sessions), pin.snap)
    news = find_new(decoded, known)
    tables = decoded.to_tables(news.new, news.consents, _IN_ONE_PIECE)
    rows = pa.concat_tables([NOTHING_FRESH.rows, *tables])
    return FreshEvents(rows, news.stricter, cut_off, overtaken)


def _values_of(log: EventLog, partition: int, runs: Iterable["Run"], start: int) -> Iterator[bytes]:
    for run in runs:
        offset = max(run.start, start)
        while offset < run.end:
            entries = log.read(partition, offset, min(READ_BYTES, run.size))
            if not entries:
                break
            for entry in entries:
                if entry.offset < run.end:
                    yield from entry.values
            offset = entries[-1].next_offset


def first_frame_of(
    log: EventLog, arrivals: FrameDecoder, tenant: str, partition: int, bounds: OffsetBounds
) -> int:
    """Find the offset of the first entry with events of the tenant in the bounds, else their
    end."""
    offset, end = bounds
    while offset < end and (entries := log.read(partition, offset, READ_BYTES)):
        for entry in entries:
            if any(
                frame.header.tenant == tenant
                for value in entry.values
                for frame in arrivals.frames(value)
            ):
                return entry.offset
        offset = entries[-1].next_offset
    return end


def start_of(
    log: EventLog, partition: int, next_offsets: Mapping[int, CoveredOffset], tenant: str | None
) -> int:
    """Find the first offset that the lake does not cover for a tenant, or for all. If the log's
    `first` is beyond it after reading, the log removed events that the lake covers by now."""
    covered = next_offsets.get(partition)
    if covered is None or covered.log_id != log.id:
        return log.bounds(partition).first
    return covered.next_offset if tenant is None else covered.of(tenant)
