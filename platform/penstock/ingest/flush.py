"""One flush, decided: whose turn it is, and from frames of the log to the change of the lake."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from types import MappingProxyType

import duckdb
import pyarrow as pa

from penstock.events.event import DROPPED_TYPE, ID_CHARS_MAX, dropped_events
from penstock.events.frames import Frame, RejectedLine, decode_rejected
from penstock.ingest.masked_sessions import MaskSigns
from penstock.ingest.rejection_rules import RejectedRow
from penstock.ingest.settings import IngestSettings
from penstock.lake.commits import LedgerCounts, LedgerKey
from penstock.lake.duplicates import NewEvents, SessionMemory, find_new
from penstock.lake.rows import DecodedEvents, RowGroupLimits, TakeBreak, no_breaks
from penstock.lake.segments import Summariser
from penstock.settings import MIB

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

#: Files of one commit: while they are written, the lease has to hold.
FILES_PER_COMMIT_MAX = 256
#: How much of a partition is read beyond the oldest event that waits: the log keeps all of it, and
#: a query of what is newest may have to look through it.
BEHIND_BYTES_MAX = 512 * MIB


#: A tenant with less than this part of the memory for what waits is not worth a file when memory is
#: full: its frames are let go of, and read again when its turn comes.
_WORTH_A_FILE = 1 / 64
#: With so much of it, it is its turn.
_OVERGROWN = 1 / 4


@dataclass
class WaitingFrames:
    """Frames of one tenant that were read and are not committed yet."""

    #: Of the first of them.
    offset: int
    since_s: float
    #: How much had been read of the partition before.
    read_before: int = 0
    frames: list[Frame] = field(default_factory=list)
    #: The frames, and those that came since, are in the log alone.
    let_go: bool = False
    rows: int = 0
    size: int = 0

    def is_part(self, limits: IngestSettings, part: float) -> bool:
        """Whether it is so large a part of what one flush may be."""
        full = self.rows >= part * limits.flush_rows_max
        return full or self.size >= part * limits.flush_bytes_max


@dataclass
class Waiting:
    """What waits of a partition, by tenant, in the order in which each began to wait."""

    tenants: dict[str, WaitingFrames] = field(default_factory=dict)
    #: Of what is in memory.
    rows: int = 0
    size: int = 0
    #: Of the tenants whose frames were let go of, the one that has grown most since.
    grown: str | None = None
    #: How much was read of the partition so far.
    read: int = 0

    def add(self, frame: Frame, offset: int, now_s: float) -> None:
        tenant = frame.header.tenant
        waiting = self.tenants.get(tenant)
        if waiting is None:
            waiting = self.tenants[tenant] = WaitingFrames(offset, now_s, self.read)
        rows, size = sum(frame.header.counts.values()), len(frame.body)
        waiting.rows += rows
        waiting.size += size
        if not waiting.let_go:
            waiting.frames.append(frame)
            self.rows += rows
            self.size += size
        elif self.grown is None or waiting.size > self.tenants[self.grown].size:
            self.grown = tenant

    def remove(self, tenants: Iterable[str]) -> None:
        for tenant in tenants:
            waiting = self.tenants.pop(tenant)
            if tenant == self.grown:
                self.grown = None
            if not waiting.let_go:
                self.rows -= waiting.rows
                self.size -= waiting.size

    def free_memory(self) -> None:
        """Let go of all frames; the log has them."""
        for waiting in self.tenants.values():
            waiting.frames, waiting.let_go = [], True
        self.rows = self.size = 0

    def first(self) -> WaitingFrames | None:
        """Who has waited longest."""
        return next(iter(self.tenants.values()), None)


def wait_seconds(limits: IngestSettings, tenants: int, partitions: int = 1) -> float:
    """How long a tenant may wait where so many do, in each of so many partitions: the more there
    are, the longer, so that they do not write more files than they may."""
    files_per_second = limits.flush_files_per_second_max / partitions
    return max(limits.flush_seconds_max, 2 * tenants / files_per_second)


def choose_due(
    waiting: Waiting, limits: IngestSettings, now_s: float, partitions: int = 1
) -> list[str]:
    """The tenants that should be written now."""
    first = waiting.first()
    if first is None:
        return []
    if is_full(waiting, limits):
        return _largest(waiting, limits)
    grown = waiting.grown
    if grown is not None and waiting.tenants[grown].is_part(limits, _OVERGROWN):
        return [grown]
    wait_s = wait_seconds(limits, len(waiting.tenants), partitions)
    if now_s - first.since_s >= wait_s:
        # One commit takes those with it whose turn would come next.
        together_s = 0.0 if wait_s <= limits.flush_seconds_max else wait_s / 2
        of_age = takewhile(
            lambda tenant: now_s - waiting.tenants[tenant].since_s >= together_s, waiting.tenants
        )
        return _within(waiting, limits, of_age)
    if waiting.read - first.read_before >= BEHIND_BYTES_MAX:
        return choose_oldest(waiting, limits)
    return []


def choose_oldest(waiting: Waiting, limits: IngestSettings) -> list[str]:
    """As many as may be written in one commit."""
    return _within(waiting, limits, waiting.tenants)


def _within(waiting: Waiting, limits: IngestSettings, tenants: Iterable[str]) -> list[str]:
    """The first of these, as far as they are one flush; there is one at least."""
    chosen: list[str] = []
    rows = size = 0
    for tenant in islice(tenants, FILES_PER_COMMIT_MAX):
        frames = waiting.tenants[tenant]
        rows, size = rows + frames.rows, size + frames.size
        if chosen and (rows > limits.flush_rows_max or size > limits.flush_bytes_max):
            break
        chosen.append(tenant)
    return chosen


def is_full(waiting: Waiting, limits: IngestSettings) -> bool:
    """Whether no more should be read before memory is free again."""
    return waiting.rows >= limits.flush_rows_max or waiting.size >= limits.flush_bytes_max


def _largest(waiting: Waiting, limits: IngestSettings) -> list[str]:
    """Of the tenants in memory that are worth a file the fewest without whom the rest is half of
    it at most."""
    rows, size = waiting.rows, waiting.size
    chosen = []
    worth_it = [
        (tenant, frames)
        for tenant, frames in waiting.tenants.items()
        if not frames.let_go and frames.is_part(limits, _WORTH_A_FILE)
    ]
    worth_it.sort(key=lambda item: item[1].size, reverse=True)
    for tenant, frames in worth_it[:FILES_PER_COMMIT_MAX]:
        if 2 * rows <= waiting.rows and 2 * size <= waiting.size:
            break
        chosen.append(tenant)
        rows -= frames.rows
        size -= frames.size
    return chosen


@dataclass(frozen=True)
class FlushInput:
    """The frames of a flush, decoded."""

    decoded: DecodedEvents
    rejected: list[RejectedRow]
    accepted: Counter[LedgerKey]
    #: Bytes of the accepted events. Those of a frame with several sources are shared out.
    sizes: Counter[LedgerKey]
    signs: MaskSigns = field(default_factory=MaskSigns)


def decode_frames(
    frames: Iterable[Frame],
    sifted_by: Summariser | None = None,
    take_break: TakeBreak = no_breaks,
) -> FlushInput:
    """Lines that cannot be read join the lines that the gateway rejected. With `sifted_by` so do
    those that cannot be stored."""
    flush = FlushInput(DecodedEvents(), [], Counter(), Counter())
    for frame in frames:
        take_break()
        header, counts = frame.header, frame.header.counts
        if header.kind == "rejected":
            try:
                lines = decode_rejected(frame.body)
            except ValueError as error:
                reason = f"unreadable in the event log: {error}"
                lines = [RejectedLine(line=1, reason=reason, raw=frame.body)]
            flush.rejected.extend(_rejected_rows(frame, lines))
            continue
        flush.signs.look_at(frame)
        before = len(flush.decoded.events)
        fit, unfit = (frame, []) if sifted_by is None else _sift(frame, sifted_by)
        unfit += flush.decoded.add(fit)
        if unfit:
            flush.rejected.extend(_rejected_rows(frame, unfit, acknowledged=True))
            counts = Counter(event.source or "" for event in flush.decoded.events[before:])
        total = sum(counts.values())
        for source, count in counts.items():
            key = LedgerKey(header.tenant, source, hour_of(header.received_us))
            flush.accepted[key] += count
            flush.sizes[key] += len(frame.body) * count // total
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
    for key, count in _count(decoded, fresh.new).items():
        counts[key].stored += count
    if len(fresh.new) < len(decoded.events):
        new = set(fresh.new)
        repeated = [i for i in range(len(decoded.events)) if i not in new]
        for key, count in _count(decoded, repeated).items():
            counts[key].duplicate += count
    for position in fresh.new:
        if (event := decoded.events[position]).type == DROPPED_TYPE:
            hour = hour_of(decoded.received_us[position])
            key = LedgerKey(decoded.tenants[position], event.source or "", hour)
            counts[key].dropped += dropped_events(event.payload)
    for row in flush.rejected:
        counts[LedgerKey(row.tenant, row.source, hour_of(row.received_at))].rejected += 1
    return fresh, dict(counts)


def without(flush: FlushInput, positions: Collection[int]) -> tuple[FlushInput, Counter[LedgerKey]]:
    """A flush without the events at these positions, and how many those are."""
    decoded = flush.decoded
    kept = [position for position in range(len(decoded.events)) if position not in positions]
    return replace(flush, decoded=decoded.chosen(kept)), _count(decoded, sorted(positions))


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
    have let them through. A flush is stored as a whole or not at all."""
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
