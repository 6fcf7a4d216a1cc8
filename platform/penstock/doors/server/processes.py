"""The two processes of `penstock serve`, gateway and writer, and the supervisor that forks them.

The supervisor has imported what both need: they share this memory, and start at once. It runs no
thread of its own; Arrow has some, and knows how to fork."""

import math
import os
import signal
import socket
import tempfile
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from penstock.backends.execution.confinement import die_with_parent
from penstock.backends.terminal.interruption import END_SIGNALS, stop_listening
from penstock.core.metrics import Samples

Part = Literal["gateway", "writer"]

#: The pause before a process is started again. It doubles while each ends soon after its start.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.1, 30.0
_SOON_SECONDS = 60.0
#: How long `/readyz` tells that a process was started again.
_TOLD_SECONDS = 600.0
_SEAL_BYTES = 4

log_line = structlog.get_logger()

#: Answers to producers go first: events are in the log already.
_WRITER_NICE = 5


class WriterReport(msgspec.Struct):
    """The writer's account of itself, for the gateway that answers for both."""

    #: When it last made progress, by the clock of the machine.
    progress_s: float
    problem: str | None = None
    warnings: list[str] = []
    samples: Samples = {}


class Processes:
    """The supervisor, and what the two processes know of each other."""

    def __init__(self, folder: Path, *, patience_s: float) -> None:
        """Prepare, with an unnamed file in `folder`. The writer waits for the end of the gateway
        for `patience_s`."""
        self.part: Part = "gateway"
        self.restarts: Counter[Part] = Counter()
        self._reports = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # as long as the process
        self._last = WriterReport(time.monotonic())
        self._patience_s, self._pids = patience_s, dict[Part, int]()
        self._ends_s, self._ending, self._status = math.inf, False, 0
        now_s = time.monotonic()
        self._due_s: dict[Part, float] = {"gateway": now_s, "writer": now_s}
        self._started_s, self._pause_s = dict[Part, float](), dict[Part, float]()
        self._said: dict[Part, str] = {}

    def report(self, report: WriterReport) -> None:
        body = msgspec.json.encode(report)
        with suppress(OSError):  # the disk is full, which others will tell
            os.pwrite(self._reports.fileno(), zlib.crc32(body).to_bytes(_SEAL_BYTES) + body, 0)
            os.truncate(self._reports.fileno(), _SEAL_BYTES + len(body))

    @property
    def writer_report(self) -> WriterReport:
        """The last report, but none that is being written."""
        file = self._reports.fileno()
        content = os.pread(file, os.fstat(file).st_size, 0)
        seal, body = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
        if body and zlib.crc32(body).to_bytes(_SEAL_BYTES) == seal:
            self._last = msgspec.json.decode(body, type=WriterReport)
        return self._last

    @property
    def own_restarts(self) -> int:
        return self.restarts[self.part]

    def warnings(self, of_both: bool) -> list[str]:
        """Tell that this process, and with `of_both` the writer, was started again lately."""
        others = self.writer_report.warnings if of_both else []
        lately = time.monotonic() - self._started_s[self.part] < _TOLD_SECONDS
        return [*others, self._said[self.part]] if self.own_restarts and lately else others

    def divide(self, *hear: signal.Signals) -> None:
        """Fork the processes, in which this returns; the gateway hears the signals `hear`, too. The
        supervisor exits once both have ended."""
        stop_listening()
        alive, ours = os.pipe()
        heard, woken = socket.socketpair()
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        numbers = (*END_SIGNALS, signal.SIGCHLD, *hear)
        handlers = [signal.signal(number, lambda *_: None) for number in numbers]
        while not self._fork_due():
            self._wait(heard, hear)
        signal.set_wakeup_fd(-1)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
        heard.close()
        woken.close()
        os.close(ours)
        with suppress(OSError, AttributeError):  # Linux alone has it, and ends it at once
            die_with_parent()
        threading.Thread(target=_end_with, args=[alive], daemon=True).start()
        if self.part == "writer":
            os.nice(_WRITER_NICE)
        with suppress(OSError):  # Linux alone has it
            Path("/proc/self/comm").write_text(self.part)

    def _fork_due(self) -> bool:
        """Start what is due. Returns True in a new process."""
        for part in [part for part, due_s in self._due_s.items() if due_s <= time.monotonic()]:
            self._started_s[part] = time.monotonic()
            del self._due_s[part]
            self._pids[part] = os.fork()
            if not self._pids[part]:
                self.part = part
                return True
        return False

    def _wait(self, heard: socket.socket, passed_on: tuple[signal.Signals, ...]) -> None:
        """Wait for a signal, or until something is due."""
        soonest_s = min([self._ends_s, *self._due_s.values()])
        left_s = max(0.001, soonest_s - time.monotonic())
        heard.settimeout(left_s if soonest_s < math.inf else None)
        numbers = b""
        with suppress(TimeoutError):
            numbers = heard.recv(64)
        if any(number in passed_on for number in numbers):
            self._signal("gateway", signal.SIGHUP)
        if any(number in END_SIGNALS for number in numbers) and not self._ending:
            self._end()
        if time.monotonic() >= self._ends_s:
            self._ends_s = math.inf
            self._signal("writer", signal.SIGTERM)
        self._reap()

    def _signal(self, part: Part, number: signal.Signals) -> None:
        if part in self._pids:
            os.kill(self._pids[part], number)

    def _end(self) -> None:
        """End the gateway, which answers what was sent; then the writer, which stores it."""
        self._ending, self._ends_s = True, time.monotonic() + self._patience_s
        self._due_s.clear()
        self._signal("gateway", signal.SIGTERM)

    def _reap(self) -> None:
        for part, pid in [*self._pids.items()]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._pids[part]
            code = os.waitstatus_to_exitcode(status)
            lived_s = time.monotonic() - self._started_s[part]
            if code > 0 and not self.restarts[part] and lived_s < _SOON_SECONDS:
                self._status = self._status or code  # it could not start, and has said why
                self._end()
            elif not self._ending:
                self._restart(part, code, soon=lived_s < _SOON_SECONDS)
        if self._ending and "gateway" not in self._pids:
            self._ends_s = min(self._ends_s, time.monotonic())
        if self._ending and not self._pids:
            os._exit(self._status)  # there is nothing to clean up

    def _restart(self, part: Part, code: int, *, soon: bool) -> None:
        pause_s = max(self._pause_s.get(part, 0.0) * 2 * soon, _PAUSE_SECONDS_MIN)
        self._pause_s[part] = pause_s = min(pause_s, _PAUSE_SECONDS_MAX)
        self._due_s[part] = time.monotonic() + pause_s
        self.restarts[part] += 1
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        count = self.restarts[part]
        self._said[part] = f"The {part} ended {how} and was started again (restarts: {count})."
        log_line.error(self._said[part], in_s=pause_s)


def _end_with(alive: int) -> None:
    """End this process as soon as the supervisor has, however that ended."""
    os.read(alive, 1)
    os._exit(1)
