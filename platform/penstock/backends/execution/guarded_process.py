"""Processes that work for this one and cannot outlive it: a module of ours at the other end of a
socket, or a command. This module imports little: a sandbox starts once per attempt."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, NamedTuple

_LENGTH = struct.Struct("<Q")
_FILES_MAX = 64
# It imports from the same places as its caller, and none of them stands in its environment.
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
from socket import socket
import_module(sys.argv[2]).main(socket(fileno=int(sys.argv[3])), *sys.argv[4:])
"""


class GuardedProcess:
    """A process of a Python module, whose `main` gets one end of a socket; `end` is the other one.

    It has no variables but `environment` and no files but its socket. It ends when its caller
    closes the socket or is gone. What it prints goes to `output`, or to our standard error."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        kind: socket.SocketKind = socket.SOCK_STREAM,
        output: int | None = None,
        directory: str | None = None,
    ) -> None:
        self.end, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with theirs:
            command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), module]
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=2 if output is None else output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env=dict(environment or {}),
                cwd=directory,
                # Ctrl-C is for the caller. It gets no session of its own: Linux may weigh sessions
                # against each other, and how nice a process is only within each.
                process_group=0,
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self, seconds: float = 0.0) -> int:
        """Close the socket, and kill the process after these seconds. Returns its status."""
        self.end.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def describe_status(status: int) -> str:
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def framed(message: bytes) -> tuple[bytes, bytes]:
    return _LENGTH.pack(len(message)), message


class Channel:
    """Messages over a socket. Any thread may send, one may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: bytes, files: Sequence[int] = ()) -> None:
        with self._lock:
            length, content = framed(message)
            if files:
                socket.send_fds(self._end, [length], files)
            else:
                self._end.sendall(length)
            self._end.sendall(content)

    def receive(self, bytes_max: int | None = None, files: list[int] | None = None) -> bytearray:
        """Receive a message; file descriptors that come with it are added to `files`. Raises
        EOFError where the other end is gone, silent for too long, or sends too much."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, files))
        if bytes_max is not None and length > bytes_max:
            raise EOFError("the other end sends too much")
        return self._read(length)

    def _read(self, length: int, files: list[int] | None = None) -> bytearray:
        content = bytearray(length)
        view = memoryview(content)
        while view:
            try:
                if files is None:
                    count = self._end.recv_into(view)
                else:
                    piece, found, _, _ = socket.recv_fds(self._end, len(view), _FILES_MAX)
                    files += found
                    count = len(piece)
                    view[:count] = piece
            except OSError as error:
                raise EOFError(str(error)) from error
            if not count:
                raise EOFError("the other end is gone")
            view = view[count:]
        return content

    def end(self) -> None:
        """Make sends and receives on every thread see that the other end is gone."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._end.close()


_POLL_SECONDS = 0.05
_OUTPUT_BYTES_MAX = 2_000

# Ends with the status of the command; 128 + n where signal n ended it.
_GUARD = """
import _thread, os, sys
alone, *files = sys.argv[1].split(",")
for file in files:
    os.set_inheritable(int(file), False)
TERM, KILL, PIPE, XFSZ = 15, 9, 13, 25  # the module with their names takes a third of the start
child = os.posix_spawnp(
    sys.argv[2], sys.argv[2:], os.environ, setsid=True, setsigdef=[PIPE, XFSZ],
    file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
)
def send(number):
    try:
        os.killpg(child, number)
    except (ProcessLookupError, PermissionError):
        pass
def guard():
    if os.read(0, 1):
        send(TERM)
        os.read(0, 1)
    send(KILL)
_thread.start_new_thread(guard, ())
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if alone:
    send(KILL)
os._exit(status if status >= 0 else 128 - status)
"""


class ProcessEnd(NamedTuple):
    #: None where it was stopped: it ran too long, or its caller did not want it any more.
    status: int | None
    #: The end of its output, for an error message.
    output: str
    cancelled: bool = False


def run_guarded(
    command: str | Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds_max: float,
    cancelled: Callable[[], bool] = lambda: False,
    show: Callable[[bytes], object] | None = None,
    directory: str | Path | None = None,
    log: Path | None = None,
    grace_seconds: float = 0.0,
    leaves_processes: bool = False,
    open_files: Sequence[int] = (),
) -> ProcessEnd:
    """Run a program, or a command by `sh`, until it ends, its time is over, or `cancelled` says so.

    Its process group ends with this process, even if that is killed. Its output goes to `show` or
    is appended to `log`. With `grace_seconds` a stopped command gets SIGTERM first. With
    `leaves_processes` what it started may outlive it. A guard process holds `open_files`, such as
    locks, until the command has ended."""
    words = ["sh", "-c", command] if isinstance(command, str) else command
    how = ",".join(["" if leaves_processes else "alone", *map(str, open_files)])
    with nullcontext(subprocess.PIPE) if log is None else _opened(log) as sink:
        process = subprocess.Popen(
            [sys.executable, "-ISc", _GUARD, how, *words],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=open_files,
            start_new_session=True,  # Ctrl-C is for the caller, which then stops the command
        )
    assert process.stdin is not None
    output: deque[int] = deque(maxlen=_OUTPUT_BYTES_MAX)
    # A process that the command leaves behind may hold its output open for ever.
    reader = threading.Thread(target=_pass_on, args=[process.stdout, output, show], daemon=True)
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


def _opened(log: Path) -> IO[bytes]:
    from penstock.core.files import open_private

    file: IO[bytes] = open_private(log, "ab")
    return file


def _pass_on(
    source: IO[bytes] | None, last: deque[int], show: Callable[[bytes], object] | None
) -> None:
    if source is None:
        return
    with source:
        while block := os.read(source.fileno(), 1 << 16):
            last.extend(block)
            if show is not None:
                with suppress(OSError, ValueError):
                    show(block)
