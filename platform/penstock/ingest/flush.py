"""One flush, decided: from what was read of the log to what the lake will be told."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.events.envelope import ID_CHARS_MAX
from penstock.events.frames import Frame, RejectedLine, decode_rejected
from penstock.lake.commit import LedgerCounts, LedgerKey, RejectedRow
from penstock.lake.duplicates import SessionMemory, Told, tell_new
from penstock.lake.rows import Decoded

HOUR_US = 3_600_000_000

#: Parts a frame from lines of it that cannot be stored.
Sieve = Callable[[Frame], tuple[Frame, list[RejectedLine]]]


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


def gather(frames: Iterable[Frame], sieve: Sieve | None = None) -> Gathered:
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
