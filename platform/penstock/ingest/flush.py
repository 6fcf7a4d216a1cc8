"""One flush, decided: from frames of the log to the change of the lake."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.events.event import ID_CHARS_MAX
from penstock.events.frames import Frame, RejectedLine, decode_rejected
from penstock.ingest.errors import RejectedLimitReached
from penstock.lake.commits import LedgerCounts, LedgerKey, RejectedRow
from penstock.lake.duplicates import NewEvents, SessionMemory, find_new
from penstock.lake.rows import DecodedEvents, RowGroupLimits
from penstock.lake.segments import Summariser

HOUR_US = 3_600_000_000

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


@dataclass(frozen=True)
class FlushLimits:
    rows_max: int
    bytes_max: int
    seconds_max: float

    def reached(self, rows: int, size: int, age_s: float) -> bool:
        """Whether a buffer like this should be written now."""
        if not size:
            return False
        return rows >= self.rows_max or size >= self.bytes_max or age_s >= self.seconds_max


@dataclass(frozen=True)
class FlushInput:
    """The frames of a flush, decoded."""

    decoded: DecodedEvents
    rejected: list[RejectedRow]
    accepted: Counter[LedgerKey]

    @property
    def seen(self) -> int:
        return len(self.decoded.events) + len(self.rejected)


@dataclass(frozen=True)
class FlushPlan:
    """What a flush will store."""

    told: NewEvents
    counts: dict[LedgerKey, LedgerCounts]


def decode_frames(frames: Iterable[Frame], sieve: "Sieve | None" = None) -> FlushInput:
    """Lines that cannot be read, or that the sieve holds back, join the lines that the gateway
    rejected."""
    flush_input = FlushInput(DecodedEvents(), [], Counter())
    for frame in frames:
        if frame.header.kind == "rejected":
            flush_input.rejected.extend(_rejected_rows(frame, _rejected_lines(frame)))
            continue
        before = len(flush_input.decoded.events)
        fit, unfit = sieve(frame) if sieve else (frame, [])
        unreadable = unfit + flush_input.decoded.add(fit)
        flush_input.rejected.extend(_rejected_rows(frame, unreadable))
        counts = frame.header.counts
        if unreadable:
            counts = Counter(e.source or "" for e in flush_input.decoded.events[before:])
        header = frame.header
        for source, count in counts.items():
            key = LedgerKey(header.tenant, source, hour_of(header.received_us))
            flush_input.accepted[key] += count
    return flush_input


def plan_flush(flush_input: FlushInput, memories: dict[str, SessionMemory]) -> FlushPlan:
    """Separate new events from repeated ones, and count. Adds the new ones to the memories."""
    decoded = flush_input.decoded
    told = find_new(decoded, memories)
    counts: defaultdict[LedgerKey, LedgerCounts] = defaultdict(LedgerCounts)
    for key, count in flush_input.accepted.items():
        counts[key].accepted += count
    for key, count in _count(decoded, told.new).items():
        counts[key].stored += count
    if len(told.new) < len(decoded.events):
        new = set(told.new)
        repeated = [i for i in range(len(decoded.events)) if i not in new]
        for key, count in _count(decoded, repeated).items():
            counts[key].duplicate += count
    for row in flush_input.rejected:
        counts[LedgerKey(row.tenant, row.source, hour_of(row.received_at))].rejected += 1
    return FlushPlan(told, dict(counts))


def hour_of(us: int) -> int:
    """The hour of the ledger that a time belongs to."""
    return us - us % HOUR_US


def _count(decoded: DecodedEvents, chosen: Sequence[int]) -> Counter[LedgerKey]:
    """Counts by exact time first: that leaves few times to turn into hours."""
    exact = Counter(
        (decoded.tenants[i], decoded.events[i].source or "", decoded.received_us[i]) for i in chosen
    )
    counts: Counter[LedgerKey] = Counter()
    for (tenant, source, received_us), count in exact.items():
        counts[LedgerKey(tenant, source, hour_of(received_us))] += count
    return counts


def _rejected_lines(frame: Frame) -> list[RejectedLine]:
    try:
        return decode_rejected(frame.body)
    except ValueError as error:
        return [
            RejectedLine(line=1, reason=f"unreadable in the event log: {error}", raw=frame.body)
        ]


def _rejected_rows(frame: Frame, lines: Iterable[RejectedLine]) -> list[RejectedRow]:
    return [
        RejectedRow(
            tenant=frame.header.tenant,
            source=_storable(line.source)[:ID_CHARS_MAX],
            received_at=frame.header.received_us,
            line=line.line,
            reason=_storable(line.reason),
            raw=line.raw,
            truncated=line.truncated,
        )
        for line in lines
    ]


def _storable(text: str) -> str:
    """The text as every database takes it: a bad line's own source may hold anything."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


@dataclass(frozen=True)
class Sieve:
    """Finds the lines that the gateway should not have let through.

    A flush is stored as a whole or not at all. Where the bytes of a line prevent it, each line
    is tried alone: slow, and done only then.
    """

    summariser: Summariser

    def __call__(self, frame: Frame) -> tuple[Frame, list[RejectedLine]]:
        """The frame without the lines that cannot be stored, and those lines."""
        fit: list[bytes] = []
        unfit: list[RejectedLine] = []
        for number, line in enumerate(frame.body.split(b"\n"), 1):
            if why := self._why_unfit(Frame(frame.header, line)):
                unfit.append(RejectedLine(line=number, reason=why, raw=line))
            else:
                fit.append(line)
        return Frame(frame.header, b"\n".join(fit)), unfit

    def _why_unfit(self, frame: Frame) -> str | None:
        decoded = DecodedEvents()
        try:
            decoded.add(frame)
            told = find_new(decoded, {session: SessionMemory() for session in decoded.sessions})
            for rows in decoded.to_tables(told.new, told.consents, _ONE_ROW):
                self.summariser.summarise(rows)
        except UNFIT as error:
            return f"cannot be stored: {error}"
        return None


class RejectionLimit:
    """Stops the writer when most lines are rejected: something is wrong that a person must see.
    Watches the last lines that the writer stored or rejected, of all its partitions."""

    def __init__(self, ratio_max: float, window_lines: int) -> None:
        self._ratio_max = ratio_max
        self._window_lines = window_lines
        self._flushes: deque[tuple[int, int]] = deque()
        self._seen = 0
        self._rejected = 0

    def check(self, seen: int, rejected: int, reason: str) -> None:
        """Raises RejectedLimitReached when a flush of these lines must not be committed."""
        all_seen = self._seen + seen
        all_rejected = self._rejected + rejected
        # A share of the whole window, so that a few bad lines on a quiet day stop nothing.
        if rejected and all_rejected > self._ratio_max * max(all_seen, self._window_lines):
            raise RejectedLimitReached(
                rejected=all_rejected,
                seen=all_seen,
                limit=f"{self._ratio_max:.0%} of {max(all_seen, self._window_lines)}",
                reason=reason,
            )

    def add(self, seen: int, rejected: int) -> None:
        """Count a committed flush: one that is tried again counts once."""
        self._flushes.append((seen, rejected))
        self._seen += seen
        self._rejected += rejected
        while self._seen - self._flushes[0][0] >= self._window_lines:
            gone_seen, gone_rejected = self._flushes.popleft()
            self._seen -= gone_seen
            self._rejected -= gone_rejected
