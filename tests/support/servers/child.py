"""Server processes that never outlive the process that started them."""

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
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
