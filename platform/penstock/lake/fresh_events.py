"""Events that are in the log but in no segment yet, as rows that a query can see."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.eventlog import EventLog, OffsetBounds
from penstock.eventlog.settings import EventLogSettings
from penstock.events.frames import REJECTED_LINE_BYTES_MAX, FrameDecoder
from penstock.events.validation import Rejection
from penstock.lake.catalog import CoveredOffset
from penstock.lake.duplicates import KnownEvents, find_new
from penstock.lake.rows import EVENT_ROWS, DecodedEvents, RowGroupLimits
from penstock.settings import MIB

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


@dataclass(frozen=True)
class FreshEvents:
    """Rows that a query sees beside the segments, and what they change of sessions' consent."""

    rows: pa.Table
    consents: dict[tuple[str, str], str]
    #: The newest events are missing: the log holds more than a query may read.
    cut_off: bool
    #: The log let go of what the lake took over meanwhile: pin the lake again.
    overtaken: bool


#: Says which of some decoded events, by their positions, no query may see.
Withhold = Callable[["Lake", DecodedEvents], Collection[int]]

_READ_BYTES = 4 * MIB
#: So many times what a query may read of its tenant's events it looks through in the log.
_PASSED_OVER_TIMES = 4
_IN_ONE_PIECE = RowGroupLimits(rows_max=2**62, bytes_max=2**30)
NOTHING_FRESH = FreshEvents(EVENT_ROWS.empty_table(), {}, cut_off=False, overtaken=False)


def arrivals_of(lake: "Lake") -> FrameDecoder:
    """How the values of its log are read. What came into it past a gateway is redacted here."""
    bytes_max = lake.settings.room(EventLogSettings).event_bytes_max

    def redact(lines: list[bytes], tenant: str) -> tuple[list[bytes], list[Rejection]]:
        redacted = lake.redactor.redact(lines, tenant, bytes_max)
        return redacted.lines, [line.rejection() for line in redacted.refused]

    return FrameDecoder(lake.log.partitions, bytes_max, REJECTED_LINE_BYTES_MAX, redact)


def without_withheld(lake: "Lake", decoded: DecodedEvents) -> DecodedEvents:
    """Without what rooms above the lake say that nobody may see, such as what was erased and sent
    again: the writer will drop it, but a query may come sooner."""
    withheld = {position for withhold in _withholds() for position in withhold(lake, decoded)}
    if not withheld:
        return decoded
    return decoded.chosen([at for at in range(len(decoded.events)) if at not in withheld])


@cache
def _withholds() -> list[Withhold]:
    """Looking for entry points takes longer than a small query."""
    return [entry.load() for entry in entry_points(group="penstock.withheld")]


def read_fresh(
    lake: "Lake",
    arrivals: FrameDecoder,
    *,
    next_offsets: Mapping[int, CoveredOffset],
    known: KnownEvents,
    snap: int,
    tenant: str,
    bytes_max: int,
) -> FreshEvents:
    """What the log holds of a tenant beyond `snap`, without what the lake has already. What others
    sent is passed over, so that it costs this tenant's queries little."""
    log, decoded = lake.log, DecodedEvents()
    left, unread, overtaken = bytes_max, _PASSED_OVER_TIMES * bytes_max, False
    for partition in range(log.partitions):
        start = offset = start_of(log, partition, next_offsets, tenant)
        while min(left, unread) > 0 and (
            entries := log.read(partition, offset, min(left, _READ_BYTES))
        ):
            for value in (value for entry in entries for value in entry.values):
                unread -= len(value)
                for frame in arrivals.frames(value):
                    if frame.header.kind == "events" and frame.header.tenant == tenant:
                        left -= len(frame.body)
                        decoded.add(frame)
            offset = entries[-1].next_offset
        overtaken = overtaken or log.bounds(partition).first > start
    cut_off = min(left, unread) <= 0
    if decoded.events:
        decoded = without_withheld(lake, decoded)
    if not decoded.events:
        return FreshEvents(NOTHING_FRESH.rows, {}, cut_off, overtaken)
    news = find_new(decoded, known.recall(set(decoded.sessions), snap))
    tables = decoded.to_tables(news.new, news.consents, _IN_ONE_PIECE)
    rows = pa.concat_tables([NOTHING_FRESH.rows, *tables])
    return FreshEvents(rows, news.stricter, cut_off, overtaken)


def first_frame_of(
    log: EventLog, arrivals: FrameDecoder, tenant: str, partition: int, bounds: OffsetBounds
) -> int:
    """The offset of the first entry in these bounds that holds something of the tenant; their end
    where there is none."""
    offset, end = bounds
    while offset < end and (entries := log.read(partition, offset, _READ_BYTES)):
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
    """The first offset that the lake does not cover, for a tenant or for some tenant. When the
    log's `first` is beyond it after reading on from there, the log let go of events that the lake
    covers by now."""
    covered = next_offsets.get(partition)
    if covered is None or covered.log_id != log.id:
        return log.bounds(partition).first
    return covered.next_offset if tenant is None else covered.of(tenant)
