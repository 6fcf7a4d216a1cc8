"""A `penstock serve` that is started again whenever it has ended, as a supervisor does it."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from tests.support.servers.child import start_child

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS_MAX = 2.0
#: Beyond what the process itself takes for its end.
_END_SECONDS_MAX = 120.0
_UP_SECONDS_MAX = 20.0
#: What it ends with when something that it needs to start cannot be reached.
_UNREACHABLE = 3
_SHOWN_CHARS = 6000


class Serving:
    """Calls of one thread at a time; the supervisor's thread is beside it."""

    def __init__(self, name: str, role: str, data: Path, port: int) -> None:
        """`data` holds its settings file."""
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = data / "server.log"
        #: How it ended, by what was done to it.
        self.ends: Counter[str] = Counter()
        #: Sentences: what it must not do.
        self.findings: list[str] = []
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(data)]
        self._command = [*command, "--port", str(port), "--role", role]
        self._client = ServiceClient(self.url, seconds_max=_ANSWER_SECONDS_MAX)
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._up = False
        self._paused = False
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name=f"supervisor-{name}")
        self._supervisor.start()

    def start(self) -> None:
        with self._mutex:
            self._spawn()

    def kill(self) -> None:
        with self._mutex:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self.ends["killed"] += 1

    def stop(self) -> None:
        """Ask it to end. That it does, in time and with status 0, is part of what is tested; only
        before it is up a signal just ends it."""
        self.wait_until_up()
        with self._mutex:
            process, self._process = self._process, None
            up = self._up
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.findings.append(f"{self.name} did not end within {_END_SECONDS_MAX:g} s")
            return
        self.ends["stopped"] += 1
        if up and status != 0:
            self.findings.append(f"{self.name} was asked to end and ended with {status}")

    def pause(self) -> None:
        with self._mutex:
            self._paused = True
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        with self._mutex:
            self._signal(signal.SIGCONT)
            self._paused = False

    def wait_until_up(self, within_s: float = _UP_SECONDS_MAX) -> bool:
        """False where it did not come up: what it needs may be away."""
        deadline = time.monotonic() + within_s
        while not self._up and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return self._up

    def close(self) -> None:
        """End it without asking."""
        self._over.set()
        self._supervisor.join()
        self.kill()
        self._client.close()

    def problems(self) -> list[str]:
        """What /readyz says."""
        with self._mutex:
            try:
                found: list[str] = self._client.get("/readyz").json()["problems"]
            except ServerUnreachable:
                return ["it does not answer"]
        return found

    def tracebacks(self) -> list[str]:
        """Nothing that happens here is unexpected: each is a fault of the code."""
        text = self.log.read_text(errors="replace")
        pieces = text.split("Traceback (most recent call last)")[1:]
        return [f"{self.name}: traceback\n{piece[:_SHOWN_CHARS]}" for piece in pieces]

    def _spawn(self) -> None:
        self._up = False
        self._process = start_child(self._command, log=self.log)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _supervise(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            with self._mutex:
                if self._process is None or self._paused:
                    continue
                status = self._process.poll()
                if status is not None:
                    self._ended_by_itself(status)
                    self._spawn()
                elif not self._up:
                    self._up = self._answers()

    def _ended_by_itself(self, status: int) -> None:
        self.ends[f"ended by itself with {status}"] += 1
        if self._up or status != _UNREACHABLE:
            when = "at work" if self._up else "starting"
            self.findings.append(f"{self.name} ended by itself with {status} while {when}")

    def _answers(self) -> bool:
        try:
            return self._client.get("/healthz").status == 200
        except ServerUnreachable:
            return False


def each(servings: list[Serving], what: Callable[[Serving], object]) -> None:
    """Do it to all at the same time."""
    threads = [threading.Thread(target=what, args=(one,)) for one in servings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
