"""One flush, decided: from frames of the log to the change of the lake."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import duckdb
import pyarrow as pa

from penstock.events.event import ID_CHARS_MAX
from penstock.events.frames import Frame, RejectedLine, count_near_misses, decode_rejected
from penstock.ingest.rejection_rules import RejectedRow
from penstock.ingest.settings import IngestSettings
from penstock.lake.commits import LedgerCounts, LedgerKey
from penstock.lake.duplicates import NewEvents, SessionMemory, find_new
from penstock.lake.rows import DecodedEvents, RowGroupLimits
from penstock.lake.segments import Summariser

#: Errors that the bytes of a line may raise. None of them comes from a disk or a network: an
#: outage never rejects a line.
UNFIT = (
    ArithmeticError,
    RecursionError,
    ValueError,  # msgspec's errors are, too
    duckdb.DataError,
    duckdb.ProgrammingError,
    pa.ArrowException,
)
_ONE_ROW = RowGroupLimits(rows_max=1, bytes_max=1)


#: What was erased of nearly every flush.
NONE: Mapping[LedgerKey, int] = MappingProxyType({})


def is_due(limits: IngestSettings, rows: int, size: int, age_s: float) -> bool:
    """Whether a buffer like this should be written now."""
    full = rows >= limits.flush_rows_max or size >= limits.flush_bytes_max
    return size > 0 and (full or age_s >= limits.flush_seconds_max)


@dataclass(frozen=True)
class FlushInput:
    """The frames of a flush, decoded."""

    decoded: DecodedEvents
    rejected: list[RejectedRow]
    accepted: Counter[LedgerKey]
    #: Bytes of the accepted events. Those of a frame with several sources are shared out.
    sizes: Counter[LedgerKey]
    #: Of the accepted events, those with keys that are nearly known.
    near_misses: Counter[LedgerKey] = field(default_factory=Counter)


def decode_frames(frames: Iterable[Frame], sifted_by: Summariser | None = None) -> FlushInput:
    """Lines that cannot be read join the lines that the gateway rejected. With `sifted_by` so do
    those that cannot be stored."""
    flush = FlushInput(DecodedEvents(), [], Counter(), Counter())
    for frame in frames:
        header, counts, misses = frame.header, frame.header.counts, frame.header.near_misses
        if header.kind == "rejected":
            try:
                lines = decode_rejected(frame.body)
            except ValueError as error:
                reason = f"unreadable in the event log: {error}"
                lines = [RejectedLine(line=1, reason=reason, raw=frame.body)]
            flush.rejected.extend(_rejected_rows(frame, lines))
            continue
        before = len(flush.decoded.events)
        fit, unfit = (frame, []) if sifted_by is None else _sift(frame, sifted_by)
        unfit += flush.decoded.add(fit)
        if unfit:
            flush.rejected.extend(_rejected_rows(frame, unfit, acknowledged=True))
            counts = Counter(event.source or "" for event in flush.decoded.events[before:])
            misses = count_near_misses(header, fit.body.split(b"\n"))
        total = sum(counts.values())
        for source, count in counts.items():
            key = LedgerKey(header.tenant, source, hour_of(header.received_us))
            flush.accepted[key] += count
            flush.sizes[key] += len(frame.body) * count // total
            flush.near_misses[key] += misses.get(source, 0)
    return flush


def plan_flush(
    flush: FlushInput, memories: dict[str, SessionMemory], erased: Mapping[LedgerKey, int] = NONE
) -> tuple[NewEvents, dict[LedgerKey, LedgerCounts]]:
    """Separate new events from repeated ones, and count what the ledger gets. Adds the new ones to
    the memories. `erased` were dropped before."""
    decoded = flush.decoded
    fresh = find_new(decoded, memories)
    counts: defaultdict[LedgerKey, LedgerCounts] = defaultdict(LedgerCounts)
    for key, count in erased.items():
        counts[key].erased += count
    for key, count in flush.accepted.items():
        counts[key].accepted += count
        counts[key].bytes += flush.sizes[key]
        counts[key].near_misses += flush.near_misses[key]
    for key, count in _count(decoded, fresh.new).items():
        counts[key].stored += count
    if len(fresh.new) < len(decoded.events):
        new = set(fresh.new)
        repeated = [i for i in range(len(decoded.events)) if i not in new]
        for key, count in _count(decoded, repeated).items():
            counts[key].duplicate += count
    for row in flush.rejected:
        counts[LedgerKey(row.tenant, row.source, hour_of(row.received_at))].rejected += 1
    return fresh, dict(counts)


def without(flush: FlushInput, erased: Collection[int]) -> tuple[FlushInput, Counter[LedgerKey]]:
    """A flush without the events at these positions, and how many those are."""
    decoded = flush.decoded
    kept = [position for position in range(len(decoded.events)) if position not in erased]
    return replace(flush, decoded=decoded.chosen(kept)), _count(decoded, sorted(erased))


def hour_of(us: int) -> int:
    return us - us % 3_600_000_000


def _count(decoded: DecodedEvents, chosen: Sequence[int]) -> Counter[LedgerKey]:
    """Counts by exact time first: that leaves few times to turn into hours."""
    exact = Counter(
        (decoded.tenants[i], decoded.events[i].source or "", decoded.received_us[i]) for i in chosen
    )
    counts: Counter[LedgerKey] = Counter()
    for (tenant, source, received_us), count in exact.items():
        counts[LedgerKey(tenant, source, hour_of(received_us))] += count
    return counts


def _rejected_rows(
    frame: Frame, lines: Iterable[RejectedLine], *, acknowledged: bool = False
) -> list[RejectedRow]:
    return [
        RejectedRow(
            tenant=frame.header.tenant,
            source=_storable(line.source)[:ID_CHARS_MAX],
            received_at=frame.header.received_us,
            line=line.line,
            reason=_storable(line.reason),
            raw=line.raw,
            truncated=line.truncated,
            acknowledged=acknowledged,
        )
        for line in lines
    ]


def _storable(text: str) -> str:
    """The text as every database takes it: a bad line's own source may hold anything."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _sift(frame: Frame, summariser: Summariser) -> tuple[Frame, list[RejectedLine]]:
    """The frame without the lines that cannot be stored, and those lines: the gateway should not
    have let them through.

    A flush is stored as a whole or not at all. Where the bytes of a line prevent it, each line is
    tried alone: slow, and done only then.
    """
    fit: list[bytes] = []
    unfit: list[RejectedLine] = []
    for number, line in enumerate(frame.body.split(b"\n"), 1):
        decoded = DecodedEvents()
        try:
            decoded.add(Frame(frame.header, line))
            fresh = find_new(decoded, {session: SessionMemory() for session in decoded.sessions})
            for rows in decoded.to_tables(fresh.new, fresh.consents, _ONE_ROW):
                summariser.summarise(rows)
        except UNFIT as error:
            unfit.append(RejectedLine(line=number, reason=f"cannot be stored: {error}", raw=line))
        else:
            fit.append(line)
    return Frame(frame.header, b"\n".join(fit)), unfit
