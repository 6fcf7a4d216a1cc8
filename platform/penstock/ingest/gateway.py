"""The gateway: from a request body to durable values of the event log."""

import asyncio
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from penstock.backends.eventlog.log import EventLog, EventLogSettings
from penstock.core.errors import Backlogged, public_cause
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.events.bodies import split_body
from penstock.events.frames import HEADER_BYTES_MAX, REJECTED_LINE_BYTES_MAX, encode_values, pack
from penstock.events.near_misses import NearMisses, NearMissSample
from penstock.events.redaction import SourceRule
from penstock.events.redaction.line_redaction import LineRedactor, RedactedLines
from penstock.events.validation import Rejection, ValidatedLines, validate_parts
from penstock.ingest.decompression import BodyUnreadable

#: Validated at a time, so that other requests get their turn.
CHUNK_BYTES = 256 * 1024
#: A body with more lines that are invalid or blank is something else. The answer would list invalid
#: ones; blank ones unpack from nothing, and each takes time.
UNFIT_LINES_MAX = 100_000
#: Written at a time, unless a single value is larger.
APPEND_BYTES_MAX = 512 * 1024
#: How long a failed append marks the log as failed. Balancers send nothing to an unready gateway,
#: so no request would show that the log is back.
_FAILURE_SECONDS = 5.0


@dataclass
class Acceptance:
    """The result of a piece of a body, or of several pieces."""

    accepted: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    values: defaultdict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    near_misses: NearMisses = field(default_factory=NearMisses)
    #: Matches of redaction rules.
    redactions: Counter[SourceRule] = field(default_factory=Counter)

    def add(self, other: "Acceptance") -> None:
        self.accepted += other.accepted
        self.rejections += other.rejections
        self.near_misses.update(other.near_misses)
        self.redactions.update(other.redactions)
        for partition, values in other.values.items():
            self.values[partition] += values


class Acceptor:
    """Turns bodies of one tenant into values of this log."""

    def __init__(
        self,
        tenant: str,
        settings: Settings,
        log: EventLog,
        redactor: LineRedactor,
        sample: NearMissSample | None = None,
    ) -> None:
        self._tenant, self._redactor = tenant, redactor
        self._sample = sample or NearMissSample()
        self._partitions, self._value_bytes_max = log.partitions, log.value_bytes_max
        bytes_max = log.value_bytes_max - HEADER_BYTES_MAX
        self._event_bytes_max = min(settings.room(EventLogSettings).event_bytes_max, bytes_max)
        # Rejected lines are stored as JSON, which needs more room.
        self._rejected_line_bytes_max = min(REJECTED_LINE_BYTES_MAX, bytes_max // 2)

    def accept(
        self,
        parts: Iterable[bytes],
        received_us: int,
        first_line: int = 1,
        *,
        ndjson: bool = False,
        array_bytes_max: int = sys.maxsize,
    ) -> Iterator[Acceptance]:
        """Accept a body one piece at a time, so that the caller may yield in between."""
        place = (self._tenant, received_us, self._partitions, self._rejected_line_bytes_max)
        unfit = 0
        chunks = split_body(
            parts,
            CHUNK_BYTES,
            first_line,
            ndjson=ndjson,
            line_bytes_max=self._event_bytes_max,
            array_bytes_max=array_bytes_max,
        )
        for number, lines in chunks:
            redacted = yield from self._redacted(lines)
            validated, misses = ValidatedLines([], [], [], []), NearMisses()
            for part in validate_parts(redacted.lines, number, self._event_bytes_max):
                if validated.rejections:
                    yield Acceptance()  # let others run: checking each line takes long
                validated.lines.extend(part.lines)
                validated.sessions.extend(part.sessions)
                validated.sources.extend(part.sources)
                validated.rejections.extend(part.rejections)
                misses.update(self._sample.look_at(part.unknown, self._tenant, received_us))
            unfit += len(lines) - len(validated.lines)
            if unfit > UNFIT_LINES_MAX:
                last = (f"; line {bad.line}: {bad.reason}" for bad in validated.rejections[-1:])
                why = f"more than {UNFIT_LINES_MAX} of its lines are not events{''.join(last)}"
                raise BodyUnreadable(why=why)
            validated.rejections.extend(
                refused._replace(line=number + refused.line) for refused in redacted.refused
            )
            piece = Acceptance(
                len(validated.lines),
                sorted(validated.rejections, key=attrgetter("line")),
                near_misses=misses,
                redactions=redacted.matches,
            )
            for partition, frame in pack(validated, *place, signs=redacted.signs):
                piece.values[partition] += encode_values(frame, self._value_bytes_max)
            yield piece

    def _redacted(self, lines: list[bytes]) -> Generator[Acceptance, None, RedactedLines]:
        steps = self._redactor.redact_in_turns(lines, self._tenant, self._event_bytes_max)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                redacted: RedactedLines = end.value
                return redacted
            yield Acceptance()  # let others run


Values = Mapping[int, Sequence[bytes]]


@dataclass
class _PendingAppend:
    values: Values
    size: int
    done: asyncio.Future[None]


class GroupCommit:
    """Appends to the log on its own thread: many requests share one sync.

    Whatever arrives while the disk is busy is written together next. Callers bound the memory."""

    def __init__(self, log: EventLog, block_bytes_max: int, metrics: Metrics) -> None:
        self._log = log
        self._block_bytes_max = block_bytes_max
        self._metrics = metrics
        self._pending: deque[_PendingAppend] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._failure: tuple[Exception, float] | None = None
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    async def append(self, values: Values) -> None:
        """Return once the values are on disk. Raises the errors of the log, after which some may
        be."""
        for part in _appends_of(values):
            await self._append_part(part)

    async def _append_part(self, values: Values) -> None:
        size = sum(len(value) for of_partition in values.values() for value in of_partition)
        append = _PendingAppend(values, size, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closing:
                raise Backlogged(why="the service is shutting down", retry_after_s=5)
            self._pending.append(append)
            self._changed.notify()
        await append.done

    def problem(self) -> str | None:
        failure = self._failure
        if failure is None or time.monotonic() - failure[1] > _FAILURE_SECONDS:
            return None
        return public_cause(failure[0])

    def close(self) -> None:
        """Write what is pending, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            failure = self._append(group)
            for loop in {append.done.get_loop() for append in group}:
                futures = [append.done for append in group if append.done.get_loop() is loop]
                loop.call_soon_threadsafe(_settle, futures, failure)

    def _next_group(self) -> list[_PendingAppend]:
        with self._changed:
            while not self._pending and not self._closing:
                self._changed.wait()
            group: list[_PendingAppend] = []
            size = 0
            while self._pending and (
                not group or size + self._pending[0].size <= self._block_bytes_max
            ):
                group.append(self._pending.popleft())
                size += group[-1].size
            return group

    def _append(self, group: list[_PendingAppend]) -> Exception | None:
        merged: defaultdict[int, list[bytes]] = defaultdict(list)
        for append in group:
            for partition, values in append.values.items():
                merged[partition] += values
        started = time.perf_counter()
        try:
            self._log.append(merged)
        except Exception as error:  # noqa: BLE001  # the callers get it, whatever it is
            self._metrics.add("log_append_failures_total")
            self._failure = (error, time.monotonic())
            return error
        self._failure = None
        self._metrics.observe("log_append_seconds", time.perf_counter() - started)
        return None


def _appends_of(values: Values) -> Iterator[Values]:
    """Split an append, so that a large body does not delay small ones."""
    part: defaultdict[int, list[bytes]] = defaultdict(list)
    size = 0
    for partition, of_partition in values.items():
        for value in of_partition:
            if part and size + len(value) > APPEND_BYTES_MAX:
                yield part
                part, size = defaultdict(list), 0
            part[partition].append(value)
            size += len(value)
    if part:
        yield part


def _settle(futures: list[asyncio.Future[None]], failure: Exception | None) -> None:
    for future in futures:
        if future.done():  # its request was cancelled
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
