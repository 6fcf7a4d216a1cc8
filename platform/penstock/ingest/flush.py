"""One flush, decided: from what was read of the log to what the lake will be told."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.events.event import ID_CHARS_MAX
from penstock.events.frames import Frame, RejectedLine, decode_rejected
from penstock.ingest.errors import RejectedLimitReached
from penstock.lake.commit import LedgerCounts, LedgerKey, RejectedRow
from penstock.lake.known import SessionMemory, Told, tell_new
from penstock.lake.rows import Decoded, RowGroupLimits
from penstock.lake.summary import Summariser

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class FlushLimits:
    rows_max: int
    bytes_max: int
    seconds_max: float

    def reached(self, rows: int, size: int, age_s: float) -> bool:
        """Whether what was gathered should be written now."""
        if not size:
            return False
        return rows >= self.rows_max or size >= self.bytes_max or age_s >= self.seconds_max


@dataclass(frozen=True)
class Gathered:
    """The frames of a flush, decoded."""

    decoded: Decoded
    rejected: list[RejectedRow]
    accepted: Counter[LedgerKey]

    @property
    def seen(self) -> int:
        return len(self.decoded.events) + len(self.rejected)


@dataclass(frozen=True)
class Flush:
    """What a flush will store."""

    told: Told
    counts: dict[LedgerKey, LedgerCounts]


def gather(frames: Iterable[Frame], sieve: "Sieve | None" = None) -> Gathered:
    """Decode frames; what cannot be read, or stays in the sieve, joins what the gateway
    refused."""
    gathered = Gathered(Decoded(), [], Counter())
    for frame in frames:
        if frame.header.kind == "rejected":
            gathered.rejected.extend(_rejected_rows(frame, _refused_lines(frame)))
            continue
        before = len(gathered.decoded.events)
        fit, unfit = sieve(frame) if sieve else (frame, [])
        unreadable = unfit + gathered.decoded.add(fit)
        gathered.rejected.extend(_rejected_rows(frame, unreadable))
        counts = frame.header.counts
        if unreadable:
            counts = Counter(e.source or "" for e in gathered.decoded.events[before:])
        for source, count in counts.items():
            gathered.accepted[_ledger_key(frame, source)] += count
    return gathered


def plan(gathered: Gathered, memories: dict[str, SessionMemory]) -> Flush:
    """Tell new events from repeated ones, and count. Adds the new ones to the memories."""
    decoded = gathered.decoded
    told = tell_new(decoded, memories)
    counts: defaultdict[LedgerKey, LedgerCounts] = defaultdict(LedgerCounts)
    for key, count in gathered.accepted.items():
        counts[key].accepted += count
    for key, count in _count(decoded, told.new).items():
        counts[key].stored += count
    for key, count in _count(decoded, _others(told.new, len(decoded.events))).items():
        counts[key].duplicate += count
    for row in gathered.rejected:
        counts[LedgerKey(row.tenant, row.source, _hour(row.received_at))].rejected += 1
    return Flush(told, dict(counts))


def _others(chosen: Sequence[int], total: int) -> Sequence[int]:
    if len(chosen) == total:
        return ()
    taken = set(chosen)
    return [i for i in range(total) if i not in taken]


def _count(decoded: Decoded, chosen: Sequence[int]) -> Counter[LedgerKey]:
    """Count first what is the same to the microsecond: that leaves few times to make hours of."""
    exact = Counter(
        (decoded.tenants[i], decoded.events[i].source or "", decoded.received_us[i]) for i in chosen
    )
    counts: Counter[LedgerKey] = Counter()
    for (tenant, source, received_us), count in exact.items():
        counts[LedgerKey(tenant, source, _hour(received_us))] += count
    return counts


def _ledger_key(frame: Frame, source: str) -> LedgerKey:
    return LedgerKey(frame.header.tenant, source, _hour(frame.header.received_us))


def _hour(us: int) -> int:
    return us - us % HOUR_US


def _refused_lines(frame: Frame) -> list[RejectedLine]:
    try:
        return decode_rejected(frame.body)
    except ValueError as error:
        return [
            RejectedLine(line=1, reason=f"unreadable in the event log: {error}", raw=frame.body)
        ]


def _rejected_rows(frame: Frame, lines: Iterable[RejectedLine]) -> list[RejectedRow]:
    header = frame.header
    return [
        RejectedRow(
            tenant=header.tenant,
            source=_storable(line.source)[:ID_CHARS_MAX],
            received_at=header.received_us,
            line=line.line,
            reason=_storable(line.reason),
            raw=line.raw,
            truncated=line.truncated,
        )
        for line in lines
    ]


def _storable(text: str) -> str:
    """As every database takes it: what a bad line says of itself may hold anything."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


#: What such a line may raise, wherever it is noticed. Nothing here comes from a disk or a
#: network: a line is never refused because of an outage. Nor from a slip in the code, mostly.
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
class Sieve:
    summariser: Summariser

    def __call__(self, frame: Frame) -> tuple[Frame, list[RejectedLine]]:
        """The frame without the lines that cannot be stored, and those."""
        fit: list[bytes] = []
        unfit: list[RejectedLine] = []
        for number, line in enumerate(frame.body.split(b"\n"), 1):
            if why := self._why_unfit(Frame(frame.header, line)):
                unfit.append(RejectedLine(line=number, reason=why, raw=line))
            else:
                fit.append(line)
        return Frame(frame.header, b"\n".join(fit)), unfit

    def _why_unfit(self, alone: Frame) -> str | None:
        decoded = Decoded()
        try:
            decoded.add(alone)
            told = tell_new(decoded, {one: SessionMemory() for one in decoded.sessions})
            for rows in decoded.to_tables(told.new, told.consents, _ONE_ROW):
                self.summariser.summarise(rows)
        except UNFIT as error:
            return f"cannot be stored: {error}"
        return None


class RejectionLimit:
    """Watches the last lines that the writer stored or rejected, of all its partitions."""

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
        """Take a flush into account that was committed: one that is tried again counts once."""
        self._flushes.append((seen, rejected))
        self._seen += seen
        self._rejected += rejected
        while self._seen - self._flushes[0][0] >= self._window_lines:
            gone_seen, gone_rejected = self._flushes.popleft()
            self._seen -= gone_seen
            self._rejected -= gone_rejected
