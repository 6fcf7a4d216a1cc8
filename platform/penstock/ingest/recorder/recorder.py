"""The recorder: events go to memory at once, then to disk, then to the service, by two threads."""

import atexit
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.ingest.recorder.session import RecordedSession
from penstock.ingest.recorder.spool import (
    Delivery,
    Reply,
    SendOutcome,
    Spool,
    SpooledBatch,
    any_chance,
    default_folder,
    lines_of,
    outcome,
    pause_seconds,
)

_log = logging.getLogger("penstock.recorder")

_MIB = 1024 * 1024
#: A batch is written at this size or age. A kill of the process loses the events of that time.
_BATCH_BYTES = _MIB
_GATHER_SECONDS = 0.2
#: Sessions with their own count of dropped events; beyond it they share one.
_DROPPED_SESSIONS_MAX = 1_000
_EXIT_SECONDS = 2.0
_FLUSH_SECONDS = 10.0
_UNPROCESSABLE = 422

Mask = Callable[[list[bytes]], list[bytes]]


class RecorderCounts(NamedTuple):
    recorded: int
    #: Received by the service, including events of ended processes.
    sent: int
    rejected: int
    dropped: int
    waiting: int


class _Line(NamedTuple):
    session_id: str
    content: bytes


class Recorder:
    """Records what an agent does, for a Penstock service.

    Only `flush` and `close` wait for the network or the disk, and no method raises. While the
    service is away, events wait on disk. Events without room are dropped and counted: the log
    `penstock.recorder` and the ledger of the service say so. At exit it sends for two seconds; the
    next process sends the rest. It is thread-safe, and goes on in forked processes."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        source: str = "recorder",
        spool: str | Path | None = None,
        memory_bytes_max: int = 16 * _MIB,
        spool_bytes_max: int = 256 * _MIB,
        mask: bool = True,
    ) -> None:
        """`mask` masks secrets before anything is written to disk, by this machine's redaction
        settings. It needs a full installation of Penstock. The service masks them in any case."""
        self._url, self._key = url, key
        self._folder = Path(spool) if spool is not None else default_folder()
        self._memory_bytes_max, self._spool_bytes_max = memory_bytes_max, spool_bytes_max
        self._source = source
        self._masks = mask
        self._closed = False
        self._begin()
        _recorders.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def session(
        self,
        session_id: str,
        *,
        checkpoint: str | None = None,
        user: str | None = None,
        project: str | None = None,
        **start: Any,
    ) -> RecordedSession:
        """Open a session. Further fields, such as `client` and `consent`, go into its
        `session_start`."""
        fields = {"checkpoint": checkpoint, "user": user, "project": project}
        common = {name: value for name, value in fields.items() if value is not None}
        return RecordedSession(session_id, self.record, common, start)

    def record(
        self,
        session_id: str,
        kind: str,
        payload: Mapping[str, Any],
        common: Mapping[str, Any] = {},  # never changed
    ) -> None:
        """Record an event. `common` holds fields beside the payload: `checkpoint`, `user`,
        `project`."""
        line, refusal = None, ""
        try:
            line = _Line(session_id, self._lines.line(session_id, kind, payload, common))
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            _log.warning("an event cannot be written as JSON: %s", error)
            refusal = "unserializable"
        with self._changed:
            self._recorded += 1
            if line is not None and self._closed:
                refusal = "closed"
            elif line and self._pending_bytes + len(line.content) > self._memory_bytes_max:
                refusal = "memory_full"
            if line is None or refusal:
                self._written += 1  # nothing to wait for
                self._drop(session_id, refusal)
            else:
                self._pending.append(line)
                self._pending_bytes += len(line.content)
            if len(self._pending) <= 1 or self._pending_bytes >= _BATCH_BYTES:
                self._changed.notify_all()
            if not self._threads and not self._closed:
                self._start()

    def flush(self, seconds: float = _FLUSH_SECONDS) -> bool:
        """Wait until the service has all earlier events. False if it does not, or some were
        dropped."""
        until_s = time.monotonic() + seconds
        with self._changed:
            dropped, target = self._dropped.total(), self._recorded
            self._hurry = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._written >= target, seconds):
                return False
            mark = self._spool.given
            left_s = until_s - time.monotonic()
            if not self._changed.wait_for(lambda: self._spool.gone >= mark, left_s):
                return False
            return self._dropped.total() == dropped

    def close(self, seconds: float = _EXIT_SECONDS) -> None:
        """Send what is possible in this time. The next recorder sends the rest."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._hurry = True
            self._changed.notify_all()
        until_s = time.monotonic() + seconds
        for thread in self._threads:
            with suppress(RuntimeError):  # called from this thread
                thread.join(max(0.0, until_s - time.monotonic()))
        self._write(self._take())  # what the thread had no time for
        self._spool.close()
        if waiting := self._spool.events:
            _log.warning("%d events are unsent; the next recorder sends them", waiting)
        _recorders.discard(self)

    def _begin_in_child(self) -> None:
        self._spool.forget()
        self._begin()

    def counts(self) -> RecorderCounts:
        with self._changed:
            waiting = self._recorded - self._written + self._spool.events
            return RecorderCounts(
                self._recorded, self._sent, self._rejected, self._dropped.total(), waiting
            )

    def _begin(self) -> None:
        self._lines = EventLines(self._source)
        self._spool = Spool(self._folder, self._spool_bytes_max)
        # Reentrant, because a signal handler may record meanwhile.
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[_Line] = deque()
        self._pending_bytes = 0
        self._threads: list[threading.Thread] = []
        self._recorded = self._written = self._sent = self._rejected = 0
        self._dropped: Counter[str] = Counter()
        self._untold: Counter[tuple[str, str]] = Counter()
        self._hurry = False
        self._writer_done = False
        self._mask: Mask | None = None

    def _start(self) -> None:
        works = {"recorder-spool": self._run_writer, "recorder-send": self._run_sender}
        for name, work in works.items():
            thread = threading.Thread(target=work, name=name, daemon=True)
            with suppress(RuntimeError):  # the interpreter is ending, or has no more threads
                thread.start()
                self._threads.append(thread)

    def _drop(self, session_id: str, reason: str, events: int = 1) -> None:
        if not self._dropped[reason]:
            _log.warning("events of session %s are dropped: %s", session_id[:100], reason)
        self._dropped[reason] += events
        known = len(self._untold) < _DROPPED_SESSIONS_MAX or (session_id, reason) in self._untold
        self._untold[session_id if known else f"recorder-{os.getpid()}", reason] += events

    def _run_writer(self) -> None:
        if self._masks:
            self._mask = machine_mask()
        self._spool.adopt()
        while lines := self._next_lines():
            self._write(lines)
        self._write([])  # the counts of dropped events
        with self._changed:
            self._writer_done = True
            self._changed.notify_all()

    def _next_lines(self) -> list[_Line]:
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._pending or self._closed)
            self._changed.wait_for(
                lambda: self._pending_bytes >= _BATCH_BYTES or self._closed or self._hurry,
                _GATHER_SECONDS,
            )
            return self._take()

    def _take(self) -> list[_Line]:
        with self._changed:
            taken, size = [], 0
            while self._pending and size < _BATCH_BYTES:
                taken.append(self._pending.popleft())
                size += len(taken[-1].content)
            self._pending_bytes -= size
            return taken

    def _write(self, lines: list[_Line]) -> None:
        kept = self._masked(lines)
        with self._changed:
            untold, self._untold = self._untold, Counter()
        contents = [line.content for line in kept]
        for (session_id, reason), events in untold.items():
            payload = {"events": events, "reason": reason}
            contents.append(self._lines.line(session_id, DROPPED_TYPE, payload, {}))
        is_kept = not contents or self._spool.put(contents)
        with self._changed:
            if not is_kept:
                self._untold.update(untold)
                for line in kept:
                    self._drop(line.session_id, "spool_full")
            self._written += len(lines)
            self._changed.notify_all()

    def _masked(self, lines: list[_Line]) -> list[_Line]:
        if self._mask is None or not lines:
            return lines
        masked = self._mask([line.content.rstrip(b"\n") for line in lines])
        kept = []
        for line, content in zip(lines, masked, strict=True):
            if content:
                kept.append(_Line(line.session_id, content + b"\n"))
            else:
                with self._changed:
                    self._drop(line.session_id, "redaction")
        return kept

    def _run_sender(self) -> None:
        delivery = Delivery(self._url, self._key)
        attempts = 0
        while (batch := self._next_batch()) is not None:
            reply = _reply_to(delivery, batch)
            result = outcome(reply)
            with self._changed:
                self._take_reply(batch, result, reply)
                self._changed.notify_all()
                if result in (SendOutcome.TAKEN, SendOutcome.TOO_LARGE, SendOutcome.REFUSED):
                    attempts = 0
                    continue
                if attempts == 0:
                    answer = reply.status or "no answer,"
                    _log.warning("events wait for the service: %s %s", answer, reply.problem)
                self._hurry = False  # a flush had its attempt
                pause_s = pause_seconds(attempts, reply, any_chance())
                attempts += 1
                if self._closed:
                    break
                self._pause(pause_s, asked=reply.retry_after_s > 0)
        delivery.close()

    def _pause(self, seconds: float, *, asked: bool) -> None:
        self._changed.wait_for(lambda: self._closed or (self._hurry and not asked), seconds)

    def _next_batch(self) -> SpooledBatch | None:
        with self._changed:
            while (batch := self._spool.first()) is None:
                if self._writer_done:
                    return None
                self._hurry = self._hurry and bool(self._pending)
                self._changed.wait()
            return batch

    def _take_reply(self, batch: SpooledBatch, result: SendOutcome, reply: Reply) -> None:
        if result is SendOutcome.TAKEN:
            self._spool.remove(batch)
            self._sent += batch.events
            self._rejected += reply.rejected
            if reply.rejected:
                _log.warning("the service rejected %d events", reply.rejected)
        elif result in (SendOutcome.TOO_LARGE, SendOutcome.REFUSED):
            try:
                if result is SendOutcome.TOO_LARGE and batch.events > 1:
                    self._spool.halve(batch)
                    return
                for line in lines_of(batch):
                    self._drop(json.loads(line)["session_id"], result.value)
            except (OSError, EOFError, ValueError):  # its file is missing or damaged
                self._drop(f"recorder-{os.getpid()}", "spool_lost", batch.events)
            self._spool.remove(batch)


def _reply_to(delivery: Delivery, batch: SpooledBatch) -> Reply:
    try:
        body = batch.body()
    except OSError as error:
        return Reply(_UNPROCESSABLE, problem=str(error))
    return delivery.send(body)


def machine_mask() -> Mask | None:
    """A mask by the redaction settings of this machine. None without a full installation of
    Penstock."""
    try:
        from penstock.core.errors import PenstockError
        from penstock.ingest.file_import import own_redactor
    except ImportError:
        return None
    try:
        redactor = own_redactor()
    except (PenstockError, OSError) as error:
        _log.warning("all events are dropped, since they cannot be redacted: %s", error)
        return lambda lines: [b""] * len(lines)
    return lambda lines: redactor.redact(lines, "", sys.maxsize).lines


_recorders: "weakref.WeakSet[Recorder]" = weakref.WeakSet()


def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close()


def _begin_all() -> None:
    for recorder in list(_recorders):
        recorder._begin_in_child()
    # Processes of multiprocessing skip functions registered for exit.
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.register_after_fork(
            Recorder, lambda _: util.Finalize(None, _close_all, exitpriority=0)
        )


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_all)


#: Reports a session's dropped events to the ledger.
DROPPED_TYPE = "x_recorder_dropped"

Payload = Mapping[str, Any]


class EventLines:
    """The lines of one process. Each has an `event_id`, so repetitions add nothing, and a later
    time than the one before, so the order is kept."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._process = os.urandom(8).hex()
        self._count = 0
        self._last_us = 0
        self._lock = threading.RLock()  # signal handlers may record too

    def line(self, session_id: str, kind: str, payload: Payload, common: Payload) -> bytes:
        """Encode an event. Raises ValueError, TypeError, RecursionError if JSON cannot express
        it."""
        with self._lock:
            self._count += 1
            self._last_us = ts = max(time.time_ns() // 1000, self._last_us + 1)
            event_id = f"{self._process}-{self._count}"
        event = {
            "session_id": session_id,
            "event_id": event_id,
            "source": self._source,
            "ts": ts,
            "type": kind,
            **common,
            "payload": payload,
        }
        text = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        # JSON has no lone surrogates, but file names may contain them.
        return text.encode("utf-8", "replace") + b"\n"
