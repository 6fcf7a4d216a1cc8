"""The sandbox that keeps programs from the rest of the machine: this end of its process."""

import json
import os
import pickle
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from penstock.settings import MIB
from penstock_jobs.benchmarks.errors import IsolationImpossible, SandboxFailed
from penstock_jobs.benchmarks.sandbox import network, process
from penstock_jobs.benchmarks.sandbox.folder_files import File
from penstock_jobs.benchmarks.sandbox.network import Relay
from penstock_jobs.benchmarks.sandbox.sandbox import (
    CHANGES_MAX,
    READ_BYTES,
    Excerpt,
    PathRules,
    ProgramEnd,
    Sandbox,
    SandboxLimits,
    SandboxProgram,
)
from penstock_jobs.benchmarks.sandbox.visible_files import PLACE, hidden_places, own_programs

#: Whom programs run as where this process is root; no files are theirs.
_NOBODY = 65534
_OPEN_SECONDS_MAX = 30.0
#: A program that its sandbox does not end within its time is ended from here.
_GRACE_SECONDS = 30.0
_ANSWER_BYTES_MAX = 16 * MIB


class IsolatedSandbox(Sandbox):
    """In namespaces of its own. Raises IsolationImpossible."""

    def __init__(self, limits: SandboxLimits, views: PathRules, output_bytes_max: int) -> None:
        if sys.platform != "linux":
            raise IsolationImpossible(why=f"it needs Linux, and this is {sys.platform}")
        self._output_bytes_max = output_bytes_max
        self._control, theirs = socket.socketpair()
        self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", process.__name__, str(theirs.fileno())],
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
            self._open(limits, views)
        except BaseException:
            self.close()
            raise

    def _open(self, limits: SandboxLimits, views: PathRules) -> None:
        root = os.geteuid() == 0
        self._control.settimeout(_OPEN_SECONDS_MAX)
        opening = asdict(limits) | {
            "owner": (_NOBODY, _NOBODY) if root else None,
            "hidden": hidden_places(views.hidden),
            "visible": [*own_programs(), *(os.path.realpath(path) for path in views.visible)],
            "changes_max": CHANGES_MAX,
        }
        try:
            self._send(opening)
            self._answer("unshared")
            # Users have the same numbers on both sides; there are no others.
            process_folder = Path(f"/proc/{self._process.pid}")
            nobody = f"{_NOBODY} {_NOBODY} 1\n" if root else ""
            if not root:
                (process_folder / "setgroups").write_text("deny")
            for name, number in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                (process_folder / name).write_text(f"{number} {number} 1\n{nobody}")
            self._send("mapped")
            self._answer("ready")
        except (OSError, SandboxFailed) as error:
            why = error.facts["why"] if isinstance(error, SandboxFailed) else error
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

    def run(self, program: SandboxProgram) -> ProgramEnd:
        forwards = network.plan(program.addresses)
        facts = asdict(program) | {
            "listen": [(forward.listen, forward.port) for forward in forwards.all],
            "names": forwards.names,
            "extra": list(forwards.extra),
        }
        self._send(("run", facts))
        excerpt = Excerpt(self._output_bytes_max)
        deadline = time.monotonic() + program.seconds + _GRACE_SECONDS
        relay: Relay | None = None
        try:
            _, sockets = self._await("listening", deadline, excerpt)
            if sockets:
                relay = Relay(forwards.all, [socket.socket(fileno=number) for number in sockets])
            ended = self._await("ended", deadline, excerpt)[0]["ended"]
            self._await("done", deadline, excerpt)
        finally:
            if relay is not None:
                relay.close()
            while self._read_output(excerpt):
                pass  # what was written before the end
        unreachable = relay.unreachable if relay is not None else ()
        return ProgramEnd(**ended, output=excerpt.text(), unreachable=unreachable)

    def _await(
        self, name: str, deadline: float, excerpt: Excerpt
    ) -> tuple[dict[str, Any], list[int]]:
        """Wait for an answer and read the program's output meanwhile."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                ready = [key.fileobj for key, _ in selector.select(left)]
                if self._output in ready and not self._read_output(excerpt):
                    selector.unregister(self._output)
                if self._control in ready:
                    return self._answer(name)
        raise SandboxFailed(why="it did not end a program within its time")

    def _read_output(self, excerpt: Excerpt) -> bool:
        with suppress(BlockingIOError):
            if piece := os.read(self._output, READ_BYTES):
                excerpt.add(piece)
                return True
        return False

    def _order(self, order: str, /, **arguments: Any) -> Any:
        self._send((order, arguments))
        return self._answer("done")[0]["done"]

    def _send(self, order: object) -> None:
        try:
            process.send(self._control, pickle.dumps(order))
        except OSError as error:
            raise SandboxFailed(why=f"it is gone ({error})") from error

    def _answer(self, name: str) -> tuple[dict[str, Any], list[int]]:
        """Raises SandboxFailed for any other answer."""
        try:
            payload, files = process.receive(self._control, _ANSWER_BYTES_MAX)
        except (EOFError, TimeoutError) as error:
            raise SandboxFailed(why=f"it is gone ({error})") from error
        answer: dict[str, Any] = json.loads(payload)
        if name not in answer:
            raise SandboxFailed(why=answer.get("failed", f"it answered {answer}"))
        return answer, files

    def close(self) -> None:
        self._control.close()  # ends the process, and whatever runs in it
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._output)


@cache
def check_isolation() -> None:
    """Once a process: open a sandbox and run a program in it. Raises IsolationImpossible."""
    limits = SandboxLimits(memory_bytes=1 << 30, processes=16, disk_bytes=1 << 20)
    with IsolatedSandbox(limits, PathRules(), 4096) as sandbox:
        for folder in ("cwd", "home", "scratch"):
            sandbox.put(folder, [], writable=True)
        program = SandboxProgram(
            ["sh", "-c", "exit 0"], "cwd", "home", "scratch", 20.0, {"PATH": os.defpath},
            {"cwd": True},
        )  # fmt: skip
        try:
            ended = sandbox.run(program)
        except SandboxFailed as error:
            raise IsolationImpossible(why=error.facts["why"]) from error
    if ended.status != 0:
        why = f"a program in a sandbox ended with {ended.status or ended.cut}: {ended.output[:500]}"
        raise IsolationImpossible(why=why)
