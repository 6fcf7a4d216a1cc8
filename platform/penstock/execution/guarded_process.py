"""A shell command that cannot outlive its time, its caller, or its caller's interest.

The command runs in a process group of its own below a guard. The guard ends the group as soon as
the caller lets go of a pipe, also where the caller is killed."""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.directories import open_private
from penstock.terminal.output import passing_on

_POLL_SECONDS = 0.05
_OUTPUT_BYTES_MAX = 2_000

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
if sys.argv[2] == "alone":
    send(signal.SIGKILL)
os._exit(status if status >= 0 else 128 - status)
"""


@dataclass(frozen=True)
class ProcessEnd:
    #: None where it was stopped: it ran too long, or its caller did not want it any more.
    status: int | None
    #: The end of its output, for an error message.
    output: str
    cancelled: bool = False


def run_guarded(
    command: str,
    *,
    environment: Mapping[str, str],
    seconds_max: float,
    cancelled: Callable[[], bool],
    directory: Path | None = None,
    log: Path | None = None,
    grace_seconds: float = 0.0,
    leaves_processes: bool = False,
    open_files: Sequence[int] = (),
) -> ProcessEnd:
    """Run a command by `sh` until it ends, its time is over, or `cancelled` says so.

    Its output is appended to `log`, or goes to standard error. A command that is stopped gets
    SIGTERM first where there are `grace_seconds`. With `leaves_processes` what it started may
    outlive it. The guard holds `open_files`, such as locks, until the command has ended."""
    with ExitStack() as stack:
        process = subprocess.Popen(
            [sys.executable, "-ISc", _GUARD, command, "" if leaves_processes else "alone"],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if log is None else stack.enter_context(open_private(log, "ab")),
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=open_files,
            start_new_session=True,  # Ctrl-C is for the caller, which then stops the command
        )
    assert process.stdin is not None
    output: deque[int] = deque(maxlen=_OUTPUT_BYTES_MAX)
    # A process that the command leaves behind may hold its output open for ever.
    reader = threading.Thread(target=_pass_on, args=[process.stdout, output], daemon=True)
    reader.start()
    deadline = time.monotonic() + seconds_max
    status, unwanted, late = None, False, False
    try:
        with process.stdin as pipe:
            while status is None and not (unwanted or late):
                try:
                    status = process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    unwanted, late = cancelled(), time.monotonic() >= deadline
            if status is None and grace_seconds:
                with suppress(BrokenPipeError):
                    pipe.write(b"e")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(grace_seconds)
    finally:
        process.wait()
    reader.join(1.0)
    last = bytes(output.copy())
    if log is not None:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES_MAX))
            last = file.read()
    text = last.decode(errors="replace").strip()
    return ProcessEnd(status, text or "nothing", cancelled=status is None and unwanted)


def _pass_on(source: IO[bytes] | None, last: deque[int]) -> None:
    """Pass a command's output on to standard error, and keep the end of it."""
    show = passing_on()
    with source or nullcontext() as output:
        while output and (block := os.read(output.fileno(), 4_096)):
            last.extend(block)
            with suppress(OSError, ValueError):
                show(block)
