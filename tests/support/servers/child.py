"""Server processes that never outlive the process that started them."""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The kernel ends the server when the thread that started it ends, also by SIGKILL; hence one
# thread that lives as long as this process. A hook between fork and exec would not do: Python
# advises against those beside threads.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")

_TIED_TO_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def start_child(command: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
    """Start a server whose output is appended to this log. It has a session of its own, so that
    Ctrl-C reaches it only through whoever started it."""
    if sys.platform == "linux":
        return _starter.submit(_start_tied, command, log).result()
    child = _start(command, log)
    atexit.register(child.kill)
    return child


def end_child(child: subprocess.Popen[bytes], number: signal.Signals, within_s: float) -> None:
    """Ask it to end by this signal; when it takes too long, kill it."""
    child.send_signal(number)
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _start_tied(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    return _start([sys.executable, "-ISc", _TIED_TO_PARENT, str(os.getpid()), *command], log)


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class ChildServer:
    """A server that keeps its ports and its data when it is started again."""

    STOP_SIGNAL = signal.SIGTERM
    log: Path
    _process: subprocess.Popen[bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        """For another process, which cannot stop it."""
        return vars(self) | {"_process": None}

    def start(self) -> None:
        """Returns when it answers; skips the test where it cannot be had."""
        raise NotImplementedError

    def stop(self) -> None:
        """In order, as an operator does it; one that takes too long is killed."""
        self.resume()
        self.end(self.STOP_SIGNAL)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_child(process, number, 60)

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _wait_until(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300  # of which a busy machine needs a part
        while not answers():
            if self._process is None or self._process.poll() is not None:
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return
        self.kill()
        raise RuntimeError(f"it did not start:\n{self.log_tail()}")
