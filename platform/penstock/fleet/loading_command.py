"""The command that loads a checkpoint into an engine.

It runs in a process group of its own below a guard, which kills the group as soon as its sidecar
lets go of a pipe, also by being killed. The guard holds the lock of the folder until then: the next
sidecar does not load while the command of the one before still does.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from penstock.settings import ENVIRONMENT_PREFIX

_LOOK_SECONDS = 0.02
#: What a command has to end in, once it was asked to.
_GRACE_SECONDS = 5.0
_TOLD_BYTES_MAX = 2_000
_BLOCK_BYTES = 4_096
_KEY = f"{ENVIRONMENT_PREFIX}KEY"

# Ends with the status of the shell; 128 + n where signal n ended it.
_GUARD = """
import os, signal, subprocess, sys, threading
child = subprocess.Popen(["sh", "-c", sys.argv[1]], stdin=subprocess.DEVNULL,
                         start_new_session=True)
def send(number):
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass
def guard():
    if os.read(0, 1):
        send(signal.SIGTERM)
        os.read(0, 1)
    send(signal.SIGKILL)
threading.Thread(target=guard, daemon=True).start()
status = child.wait()
os._exit(status if status >= 0 else 128 - status)
"""


@dataclass(frozen=True)
class Ended:
    """How a run of a command ended, and the end of what it said."""

    #: In words, to follow its name; nothing where it ended with 0.
    how: str
    output: str
    #: It was ended since nobody wants it any more.
    given_up: bool = False


def run(
    command: str,
    facts: Mapping[str, str],
    *,
    seconds_max: float,
    lock: int,
    given_up: Callable[[], bool],
) -> Ended:
    """Run it by `sh`, with `facts` in its environment, and without the sidecar's key. What it says
    goes to standard error."""
    mine = {name: value for name, value in os.environ.items() if name != _KEY}
    process = subprocess.Popen(
        [sys.executable, "-ISc", _GUARD, command],
        env={**mine, **facts},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=(lock,),
        start_new_session=True,  # Ctrl-C is for the sidecar, which ends the command
    )
    assert process.stdin is not None
    assert process.stdout is not None
    output = _Output(process.stdout)
    until = time.monotonic() + seconds_max
    unwanted = late = False
    with process.stdin as pipe:
        while (status := _status(process)) is None and not (unwanted or late):
            unwanted, late = given_up(), time.monotonic() >= until
        if status is None:
            _end(process, pipe)
    told = output.end()
    if status is not None:
        return Ended(f"ended with status {status}" if status else "", told)
    if unwanted:
        return Ended("was ended with its sidecar", told, given_up=True)
    return Ended(f"was ended: it had not finished after {seconds_max:g} s", told)


def _status(process: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_LOOK_SECONDS)
    return None


def _end(process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
    """It is asked first; what is left of it is killed."""
    with suppress(BrokenPipeError):
        pipe.write(b"e")
        pipe.flush()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    with suppress(BrokenPipeError):
        pipe.close()
    process.wait()


class _Output:
    """Passes on what a command says, and keeps the end of it."""

    def __init__(self, said: IO[bytes]) -> None:
        self._said = said
        self._last: deque[int] = deque(maxlen=_TOLD_BYTES_MAX)
        # What a command leaves behind may hold its output open for ever.
        self._thread = threading.Thread(target=self._pass_on, name="output", daemon=True)
        self._thread.start()

    def end(self) -> str:
        self._thread.join(1.0)
        return bytes(self._last.copy()).decode(errors="replace").strip() or "nothing"

    def _pass_on(self) -> None:
        with self._said as said:
            while block := os.read(said.fileno(), _BLOCK_BYTES):
                self._last.extend(block)
                with suppress(OSError, ValueError):
                    sys.stderr.buffer.write(block)
                    sys.stderr.flush()
