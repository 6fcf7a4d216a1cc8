"""One flush, decided: whose turn it is, and how frames of the log become a change of the lake."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

import pyarrow as pa

from penstock.core.settings import MIB
from penstock.events.event import DROPPED_TYPE, ID_CHARS_MAX, dropped_events
from penstock.events.frames import Frame, RejectedLine, decode_rejected
from penstock.ingest.masked_sessions import MaskSigns
from penstock.ingest.rejection_rules import RejectedRow
from penstock.ingest.settings import IngestSettings
from penstock.lake.commits import LedgerCounts, LedgerKey
from penstock.lake.duplicates import NewEvents, SessionMemory, find_new
from penstock.lake.rows import DecodedEvents, RowGroupLimits

#: Errors that the bytes of a line may cause; outages raise none of these.
UNFIT = (
    ArithmeticError,
    RecursionError,
    ValueError,  # includes msgspec's errors
    pa.ArrowException,
)
_ONE_ROW = RowGroupLimits(rows_max=1, bytes_max=1)
#: Files per commit; the lease must last while they are written.
FILES_PER_COMMIT_MAX = 256
#: Bytes read beyond the oldest waiting event; the log keeps them, and queries read them.
BEHIND_BYTES_MAX = 512 * MIB

#: When memory is full, the frames of tenants with less than this share of a flush are dropped and
#: read again later.
_WORTH_A_FILE = 1 / 64
#: With this share of a flush a tenant is due.
_OVERGROWN = 1 / 4


@dataclass
class WaitingFrames:
    """Frames of one tenant that were read but not committed yet."""

    #: The first offset in the log.
    offset: int
    since_s: float
    #: Bytes read of the partition before.
    read_before: int = 0
    frames: list[Frame] = field(default_factory=list)
    #: Whether the frames, and later ones, are only in the log.
    let_go: bool = False
    rows: int = 0
    size: int = 0


@dataclass
class Waiting:
    """The waiting frames of a partition by tenant, in the order in which each began to wait."""

    tenants: dict[str, WaitingFrames] = field(default_factory=dict)
    #: In memory.
    rows: int = 0
    size: int = 0
    #: The tenant that has grown most since its frames were dropped.
    grown: str | None = None
    #: Bytes read of the partition so far.
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
        """Drop all frames from memory; the log has them."""
        for waiting in self.tenants.values():
            waiting.frames, waiting.let_go = [], True
        self.rows = self.size = 0

    def first(self) -> WaitingFrames | None:
        return next(iter(self.tenants.values()), None)


def wait_seconds(limits: IngestSettings, tenants: int, partitions: int = 1) -> float:
    """The longest wait of a tenant: longer with more tenants, to limit the number of files."""
    files_per_second = limits.flush_files_per_second_max / partitions
    return max(limits.flush_seconds_max, 2 * tenants / files_per_second)


def choose_due(
    waiting: Waiting, limits: IngestSettings, now_s: float, partitions: int = 1
) -> list[str]:
    """Choose the tenants to write now."""
    first = waiting.first()
    if first is None:
        return []
    if fills(waiting, limits):
        return _largest(waiting, limits)
    grown = waiting.grown
    if grown is not None and fills(waiting.tenants[grown], limits, _OVERGROWN):
        return [grown]
    wait_s = wait_seconds(limits, len(waiting.tenants), partitions)
    if now_s - first.since_s >= wait_s:
        # Add tenants that would be due next to the same commit.
        together_s = 0.0 if wait_s <= limits.flush_seconds_max else wait_s / 2
        of_age = takewhile(
            lambda tenant: now_s - waiting.tenants[tenant].since_s >= together_s, waiting.tenants
        )
        return choose_oldest(waiting, limits, of_age)
    if waiting.read - first.read_before >= BEHIND_BYTES_MAX:
        return choose_oldest(waiting, limits, waiting.tenants)
    return []


def choose_oldest(waiting: Waiting, limits: IngestSettings, tenants: Iterable[str]) -> list[str]:
    """The first of these tenants that fit into one flush; at least one."""
    chosen: list[str] = []
    rows = size = 0
    for tenant in islice(tenants, FILES_PER_COMMIT_MAX):
        frames = waiting.tenants[tenant]
        rows, size = rows + frames.rows, size + frames.size
        if chosen and (rows > limits.flush_rows_max or size > limits.flush_bytes_max):
            break
        chosen.append(tenant)
    return chosen


def fills(waiting: Waiting | WaitingFrames, limits: IngestSettings, part: float = 1) -> bool:
    """Whether its size is at least this share of a flush."""
    full = waiting.rows >= part * limits.flush_rows_max
    return full or waiting.size >= part * limits.flush_bytes_max


def _largest(waiting: Waiting, limits: IngestSettings) -> list[str]:
    """The fewest tenants that are worth a file and leave at most half of the memory in use."""
    rows, size = waiting.rows, waiting.size
    chosen = []
    worth_it = [
        (tenant, frames)
        for tenant, frames in waiting.tenants.items()
        if not frames.let_go and fills(frames, limits, _WORTH_A_FILE)
    ]
    worth_it.sort(key=lambda item: item[1].size, reverse=True)
    for tenant, frames in worth_it[:FILES_PER_COMMIT_MAX]:
        if 2 * rows <= waiting.rows and 2 * size <= waiting.size:
            break
        chosen.append(tenant)
        rows -= frames.rows
        size -= frames.size
    return chosen


#: The reason that is kept of a rejected line about somebody who was erased.
_ERASED = "what it names was erased"


@dataclass
class FlushInput:
    """The decoded frames of a flush, and its entries for the ledger."""

    decoded: DecodedEvents = field(default_factory=DecodedEvents)
    rejected: list[RejectedRow] = field(default_factory=list)
    counts: defaultdict[LedgerKey, LedgerCounts] = field(
        default_factory=lambda: defaultdict(LedgerCounts)
    )
    signs: MaskSigns = field(default_factory=MaskSigns)

    def reject(
        self, frame: Frame, lines: Iterable[RejectedLine], *, acknowledged: bool = False
    ) -> None:
        tenant, received_us = frame.header.tenant, frame.header.received_us
        for line in lines:
            source = _storable(line.source)[:ID_CHARS_MAX]
            row = RejectedRow(
                tenant=tenant,
                source=source,
                received_at=received_us,
                line=line.line,
                reason=_storable(line.reason),
                raw=line.raw,
                truncated=line.truncated,
                acknowledged=acknowledged,
            )
            self.rejected.append(row)
            self.counts[LedgerKey(tenant, source, hour_of(received_us))].rejected += 1

    def drop_erased(self, positions: Collection[int]) -> None:
        self._count("erased", sorted(positions))
        kept = [at for at in range(len(self.decoded.events)) if at not in positions]
        self.decoded = self.decoded.chosen(kept)

    def empty_erased(self, positions: Collection[int]) -> None:
        """Count these rejected lines, and keep nothing of them."""
        for at in positions:
            self.rejected[at] = replace(self.rejected[at], raw=b"", reason=_ERASED)

    def find_new(self, memories: dict[str, SessionMemory]) -> NewEvents:
        """Separate new events from duplicates, and add the new ones to the memories."""
        decoded = self.decoded
        fresh = find_new(decoded, memories)
        self._count("stored", fresh.new)
        if len(fresh.new) < len(decoded.events):
            new = set(fresh.new)
            self._count("duplicate", [i for i in range(len(decoded.events)) if i not in new])
        for position in fresh.new:
            if (event := decoded.events[position]).type == DROPPED_TYPE:
                hour = hour_of(decoded.received_us[position])
                key = LedgerKey(decoded.tenants[position], event.source or "", hour)
                self.counts[key].dropped += dropped_events(event.payload)
        return fresh

    def _count(self, fate: str, positions: Sequence[int]) -> None:
        """Count by exact time first, which leaves few times to convert to hours."""
        tenants, events, times = self.decoded.tenants, self.decoded.events, self.decoded.received_us
        exact = Counter((tenants[i], events[i].source or "", times[i]) for i in positions)
        for (tenant, source, received_us), count in exact.items():
            counts = self.counts[LedgerKey(tenant, source, hour_of(received_us))]
            setattr(counts, fate, getattr(counts, fate) + count)


def decode_frames(frames: Iterable[Frame], *, sift: bool = False) -> FlushInput:
    """Reject unreadable lines; with `sift` also lines that cannot be stored."""
    flush = FlushInput()
    for frame in frames:
        header, counts = frame.header, frame.header.counts
        if header.kind == "rejected":
            try:
                lines = decode_rejected(frame.body)
            except ValueError as error:
                reason = f"unreadable in the event log: {error}"
                lines = [RejectedLine(line=1, reason=reason, raw=frame.body)]
            flush.reject(frame, lines)
            continue
        flush.signs.look_at(frame)
        before = len(flush.decoded.events)
        fit, unfit = _sift(frame) if sift else (frame, [])
        unfit += flush.decoded.add(fit)
        if unfit:
            flush.reject(frame, unfit, acknowledged=True)
            counts = Counter(event.source or "" for event in flush.decoded.events[before:])
        total = sum(counts.values())
        for source, count in counts.items():
            of_source = flush.counts[LedgerKey(header.tenant, source, hour_of(header.received_us))]
            of_source.accepted += count
            # Divide the bytes of a frame among its sources.
            of_source.bytes += len(frame.body) * count // total
    return flush


def hour_of(us: int) -> int:
    return us - us % 3_600_000_000


def _storable(text: str) -> str:
    """Make text that every database accepts: the source of a bad line may contain anything."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _sift(frame: Frame) -> tuple[Frame, list[RejectedLine]]:
    """Split off lines that cannot be stored, since a flush is stored as a whole or not at all."""
    fit: list[bytes] = []
    unfit: list[RejectedLine] = []
    for number, line in enumerate(frame.body.split(b"\n"), 1):
        decoded = DecodedEvents()
        try:
            decoded.add(Frame(frame.header, line))
            fresh = find_new(decoded, {session: SessionMemory() for session in decoded.sessions})
            for _ in decoded.to_tables(fresh.new, fresh.consents, _ONE_ROW):
                pass
        except UNFIT as error:
            unfit.append(RejectedLine(line=number, reason=f"cannot be stored: {error}", raw=line))
        else:
            fit.append(line)
    return Frame(frame.header, b"\n".join(fit)), unfit
