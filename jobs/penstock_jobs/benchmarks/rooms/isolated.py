"""The room that keeps programs from the rest of the machine: this end of it."""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from typing import Any, Self

from penstock_jobs.benchmarks.errors import IsolationImpossible, RoomFailed
from penstock_jobs.benchmarks.rooms import network
from penstock_jobs.benchmarks.rooms.files import File
from penstock_jobs.benchmarks.rooms.network import Relay
from penstock_jobs.benchmarks.rooms.process import receive_answer, send_order
from penstock_jobs.benchmarks.rooms.room import (
    CHANGES_MAX,
    Excerpt,
    PathRules,
    ProgramEnd,
    RoomLimits,
    RoomProgram,
)
from penstock_jobs.benchmarks.rooms.visible_files import PLACE, hidden_places, own_programs

#: Whom programs run as where this process is root; no files are theirs.
_NOBODY = 65534
_OPEN_SECONDS_MAX = 30.0
#: A program that is not ended by the room within its time is ended from here.
_GRACE_SECONDS = 30.0
_READ_BYTES = 1 << 16


class IsolatedRoom:
    """A Room in namespaces of its own. Raises IsolationImpossible."""

    def __init__(self, bounds: RoomLimits, views: PathRules, output_bytes_max: int) -> None:
        if sys.platform != "linux":
            raise IsolationImpossible(why=f"it needs Linux, and this is {sys.platform}")
        self._output_bytes_max = output_bytes_max
        ours, theirs = socket.socketpair()
        self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        self._control = ours
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "penstock_jobs.benchmarks.rooms.process",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/",
                start_new_session=True,
            )
        os.close(output)
        try:
            self._open(bounds, views)
        except BaseException:
            self.close()
            raise

    def _open(self, bounds: RoomLimits, views: PathRules) -> None:
        root = os.geteuid() == 0
        owner = (_NOBODY, _NOBODY) if root else None
        self._control.settimeout(_OPEN_SECONDS_MAX)
        opening = asdict(bounds) | {
            "owner": owner,
            "hidden": hidden_places(views.hidden),
            "visible": [*own_programs(), *(os.path.realpath(path) for path in views.visible)],
            "changes_max": CHANGES_MAX,
        }
        try:
            send_order(self._control, opening)
            self._expect("unshared")
            _map_users(self._process.pid, root=root)
            send_order(self._control, "mapped")
            self._expect("ready")
        except (OSError, RoomFailed) as error:
            why = error.facts["why"] if isinstance(error, RoomFailed) else error
            raise IsolationImpossible(why=why) from error

    def path(self, folder: str) -> str:
        return f"{PLACE}/{folder}"

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        self._order("put", folder=folder, files=list(files), writable=writable)

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        content = self._order("read", folder=folder, name=name, bytes_max=bytes_max)
        return None if content is None else str(content).encode("latin-1")

    def changed(self, folder: str) -> list[str]:
        paths: list[str] = self._order("changed", folder=folder)
        return paths

    def run(self, program: RoomProgram) -> ProgramEnd:
        forwards = network.plan(program.addresses)
        facts = asdict(program) | {
            "listen": [(forward.listen, forward.port) for forward in forwards.all],
            "names": forwards.names,
            "extra": list(forwards.extra),
        }
        send_order(self._control, ("run", facts))
        excerpt = Excerpt(self._output_bytes_max)
        with _ProgramWatch(self._control, self._output, excerpt) as watch:
            deadline = time.monotonic() + program.seconds + _GRACE_SECONDS
            _, files = watch.until("listening", deadline)
            listening = [socket.socket(fileno=number) for number in files]
            relay = Relay(forwards.all, listening) if listening else None
            try:
                ended = watch.until("ended", deadline)[0]["ended"]
                watch.until("done", deadline)
            finally:
                if relay is not None:
                    relay.close()
        unreachable = relay.unreachable if relay is not None else ()
        return ProgramEnd(**ended, output=excerpt.text(), unreachable=unreachable)

    def _order(self, order: str, /, **arguments: Any) -> Any:
        try:
            send_order(self._control, (order, arguments))
        except OSError as error:
            raise RoomFailed(why=str(error)) from error
        return self._expect("done")

    def _expect(self, name: str) -> Any:
        return _take(self._control, name)[0][name]

    def close(self) -> None:
        self._control.close()  # ends the room, and whatever runs in it
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _take(control: socket.socket, name: str) -> tuple[dict[str, Any], list[int]]:
    """Raises RoomFailed for any other answer."""
    try:
        answer, files = receive_answer(control)
    except (EOFError, TimeoutError) as error:
        raise RoomFailed(why=f"it is gone ({error})") from error
    if name not in answer:
        raise RoomFailed(why=answer.get("failed", f"it answered {answer}"))
    return answer, files


class _ProgramWatch:
    """Keeps a program's output flowing while the room's answers are waited for."""

    def __init__(self, control: socket.socket, output: int, excerpt: Excerpt) -> None:
        self._control = control
        self._output = output
        self._excerpt = excerpt
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(output, selectors.EVENT_READ)

    def until(self, name: str, deadline: float) -> tuple[dict[str, Any], list[int]]:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RoomFailed(why="the room did not end a program within its time")
            ready = [key.fileobj for key, _ in self._selector.select(left)]
            if self._output in ready:
                self._read()
            if self._control in ready:
                return _take(self._control, name)

    def _read(self) -> bool:
        with suppress(BlockingIOError):
            if piece := os.read(self._output, _READ_BYTES):
                self._excerpt.add(piece)
                return True
            self._selector.unregister(self._output)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        while self._output in self._selector.get_map() and self._read():
            pass  # what was written before the end
        self._selector.close()


def _map_users(pid: int, *, root: bool) -> None:
    """Users in the room have the numbers that they have outside; there are no others."""
    maps = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    if not root:
        _write(pid, "setgroups", "deny")
    for name, number in maps.items():
        also = f"{_NOBODY} {_NOBODY} 1\n" if root else ""
        _write(pid, name, f"{number} {number} 1\n{also}")


def _write(pid: int, name: str, text: str) -> None:
    with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
        file.write(text)


@cache
def check() -> None:
    """Once a process: a room is opened and a program run in it. Raises IsolationImpossible."""
    bounds = RoomLimits(memory_bytes=1 << 30, processes=16, disk_bytes=1 << 20)
    with IsolatedRoom(bounds, PathRules(), 4096) as room:
        for folder in ("cwd", "home", "scratch"):
            room.put(folder, [], writable=True)
        program = RoomProgram(
            ["sh", "-c", "exit 0"], "cwd", "home", "scratch", 20.0, {"PATH": os.defpath},
            {"cwd": True},
        )  # fmt: skip
        try:
            ended = room.run(program)
        except RoomFailed as error:
            raise IsolationImpossible(why=error.facts["why"]) from error
    if ended.status != 0:
        why = f"a program in a room ended with {ended.status or ended.cut}: {ended.output[:500]}"
        raise IsolationImpossible(why=why)
