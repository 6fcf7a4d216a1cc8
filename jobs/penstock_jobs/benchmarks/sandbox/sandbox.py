"""A sandbox has named folders, and runs programs in them one after another."""

import json
import os
import pickle
import platform
import selectors
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, Self

from penstock.backends.execution.guarded_process import Channel, GuardedProcess, run_guarded
from penstock.core.errors import PenstockError
from penstock.core.settings import MIB
from penstock_jobs.benchmarks.sandbox import network, process
from penstock_jobs.benchmarks.sandbox.folder_files import File, NamedFolders
from penstock_jobs.benchmarks.sandbox.network import Relay
from penstock_jobs.benchmarks.sandbox.process import call_filter, plain_command
from penstock_jobs.benchmarks.sandbox.root_folder import PLACE
from penstock_jobs.benchmarks.sandbox.visible_files import hidden_places, homes, own_programs

_READ_BYTES = 1 << 16


class IsolationImpossible(PenstockError):
    """Attempts cannot be kept apart from this machine: {why}. It takes Linux 5.14 or newer and
    the right to make namespaces (docs/benchmarks.md says what forbids it). Nothing was run; with
    --no-isolation the agent runs as you do, sees all that you see, and every result says so."""


class SandboxFailed(PenstockError):
    """The sandbox of an attempt failed: {why}."""


@dataclass(frozen=True)
class SandboxLimits:
    memory_bytes: int
    processes: int
    disk_bytes: int


@dataclass(frozen=True)
class PathRules:
    """What programs may see of the machine, besides its programs. All paths are absolute."""

    hidden: Sequence[str] = ()
    #: Readable though they lie in a place that is hidden by itself, such as /tmp or a home.
    visible: Sequence[str] = ()


@dataclass(frozen=True)
class SandboxProgram:
    command: Sequence[str]
    #: Folders of the sandbox: the working directory, HOME and /tmp.
    cwd: str
    home: str
    scratch: str
    seconds: float
    environment: Mapping[str, str] = field(repr=False)
    #: Further folders that it sees, and whether it may write there.
    folders: Mapping[str, bool] = field(default_factory=dict)
    #: HOST:PORT that it may reach; nothing else.
    addresses: Sequence[str] = ()
    disk_bytes_more: int = 0


@dataclass(frozen=True)
class ProgramEnd:
    #: As a shell reports it: 128 + N for the signal N. None where it was cut off by time or memory.
    status: int | None
    cut: str | None
    seconds: float
    #: Without the middle of a long one.
    output: str
    #: Addresses that it dialled and that never answered.
    unreachable: tuple[str, ...] = ()
    #: Folders whose sockets no overlay keeps away: the program could open no Unix socket at all.
    uncovered: Sequence[str] = ()


class Sandbox(Protocol):
    """Use as a context manager: afterwards nothing of it is left. All may raise SandboxFailed."""

    def path(self, folder: str) -> str: ...
    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None: ...
    def run(self, program: SandboxProgram) -> ProgramEnd:
        """Until it and all that it started have ended. Raises InvalidInput."""
        ...

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        """A plain file that a program left; None where there is none, or a larger one."""

    def changed(self, folder: str) -> list[str]: ...
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Excerpt:
    """The beginning and the end of an output, whatever its length."""

    def __init__(self, bytes_max: int) -> None:
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, piece: bytes) -> None:
        self._total += len(piece)
        space = self._half - len(self._head)
        self._head += piece[:space]
        self._tail += piece[space:][-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out > 0 else b""
        return (bytes(self._head) + middle + bytes(tail)).decode(errors="replace")


class PlainSandbox(Sandbox):
    """A folder. Programs see what the caller sees, with bounds on time, output, and the memory and
    CPU time of each process; the kernel refuses the same calls as in any sandbox. What leaves its
    process group outlives it, until its CPU time is used up."""

    def __init__(self, limits: SandboxLimits, output_bytes_max: int) -> None:
        self._limits = limits
        self._output_bytes_max = output_bytes_max
        self._folder = Path(mkdtemp(prefix="penstock-bench-")).resolve()
        self._folders = NamedFolders()

    def path(self, folder: str) -> str:
        return str(self._folder / folder)

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        try:
            self._folders.put(folder, self.path(folder), files)
        except OSError as error:
            raise SandboxFailed(why=str(error)) from error

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        return self._folders.read(folder, name, bytes_max)

    def changed(self, folder: str) -> list[str]:
        return self._folders.changed(folder)

    def run(self, program: SandboxProgram) -> ProgramEnd:
        bounds = {"memory_bytes": self._limits.memory_bytes, "seconds": program.seconds}
        bounds["disk_bytes"] = self._limits.disk_bytes + program.disk_bytes_more
        command = plain_command(program.command, call_filter(beside_others=True), **bounds)
        began, excerpt = time.monotonic(), Excerpt(self._output_bytes_max)
        end = run_guarded(
            command,
            environment={**program.environment, "TMPDIR": self.path(program.scratch)},
            seconds_max=program.seconds,
            show=excerpt.add,
            directory=self.path(program.cwd),
        )
        cut = "time" if end.status is None else None
        return ProgramEnd(end.status, cut, time.monotonic() - began, excerpt.text())

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


#: Whom the programs of root run as; no files are theirs.
_NOBODY = 65534
#: A program that its sandbox does not end within its time is ended from here.
_GRACE_SECONDS = 30.0
_ANSWER_BYTES_MAX = 16 * MIB


class IsolatedSandbox(Sandbox):
    """In namespaces of its own. Raises IsolationImpossible."""

    def __init__(self, limits: SandboxLimits, views: PathRules, output_bytes_max: int) -> None:
        if sys.platform != "linux":
            raise IsolationImpossible(why=f"it needs Linux, and this is {sys.platform}")
        if call_filter(beside_others=False) is None:
            why = f"no system calls can be refused on the processor {platform.machine()}"
            raise IsolationImpossible(why=why)
        self._output_bytes_max = output_bytes_max
        self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        self._process = GuardedProcess(process.__name__, output=output, directory="/")
        self._control = Channel(self._process.end)
        os.close(output)
        try:
            self._open(limits, views)
        except BaseException:
            self.close()
            raise

    def _open(self, limits: SandboxLimits, views: PathRules) -> None:
        root = os.geteuid() == 0
        self._process.end.settimeout(30.0)
        opening = asdict(limits) | {
            "owner": (_NOBODY, _NOBODY) if root else None,
            "call_filter": call_filter(beside_others=False),
            "filter_without_unix": call_filter(beside_others=False, unix_sockets=False),
            "homes": homes(),
            "hidden": hidden_places(views.hidden),
            "visible": [*own_programs(), *(os.path.realpath(path) for path in views.visible)],
        }
        with _impossible_where_it_fails():
            self._send(opening)
            self._answer("unshared")
            # Users have the same numbers on both sides; there are no others.
            process_folder = Path(f"/proc/{self._process.process.pid}")
            if not root:
                (process_folder / "setgroups").write_text("deny")
            nobody = f"{_NOBODY} {_NOBODY} 1\n" if root else ""
            for name, number in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                (process_folder / name).write_text(f"{number} {number} 1\n{nobody}")
            self._send("mapped")
            self._answer("ready")

    def path(self, folder: str) -> str:
        return f"{PLACE}/{folder}"

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        self._order("put", folder=folder, files=list(files), writable=writable)

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        content: str | None = self._order("read", folder=folder, name=name, bytes_max=bytes_max)
        return content if content is None else content.encode("latin-1")

    def changed(self, folder: str) -> list[str]:
        paths: list[str] = self._order("changed", folder=folder)
        return paths

    def run(self, program: SandboxProgram) -> ProgramEnd:
        forwards, excerpt = network.plan(program.addresses), Excerpt(self._output_bytes_max)
        listen = [(forward.listen, forward.port) for forward in forwards.all]
        facts = {"listen": listen, "names": forwards.names, "extra": forwards.extra}
        self._send(("run", asdict(program) | facts))
        deadline = time.monotonic() + program.seconds + _GRACE_SECONDS
        try:
            _, sockets = self._await("listening", deadline, excerpt)
            listening = [socket.socket(fileno=number) for number in sockets]
            with closing(Relay(forwards.all, listening)) as relay:
                ended = self._await("ended", deadline, excerpt)[0]["ended"]
                self._await("done", deadline, excerpt)
        finally:
            while self._read_output(excerpt):
                pass  # what was written before the end
        return ProgramEnd(**ended, output=excerpt.text(), unreachable=relay.unreachable)

    def _await(
        self, name: str, deadline: float, excerpt: Excerpt
    ) -> tuple[dict[str, Any], list[int]]:
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
            if piece := os.read(self._output, _READ_BYTES):
                excerpt.add(piece)
                return True
        return False

    def _order(self, order: str, /, **arguments: Any) -> Any:
        self._send((order, arguments))
        return self._answer("done")[0]["done"]

    def _send(self, order: object) -> None:
        try:
            self._control.send(pickle.dumps(order))
        except OSError as error:
            raise SandboxFailed(why=f"it is gone ({error})") from error

    def _answer(self, name: str) -> tuple[dict[str, Any], list[int]]:
        files: list[int] = []
        try:
            payload = self._control.receive(_ANSWER_BYTES_MAX, files)
        except EOFError as error:
            raise SandboxFailed(why=f"it is gone ({error})") from error
        answer: dict[str, Any] = json.loads(payload)
        if name not in answer:
            raise SandboxFailed(why=answer.get("failed", f"it answered {answer}"))
        return answer, files

    def close(self) -> None:
        self._process.stop(_GRACE_SECONDS)  # ends whatever runs in it
        os.close(self._output)


@cache
def check_isolation() -> None:
    """Once a process: open a sandbox and run a program in it. Raises IsolationImpossible."""
    limits, folders = SandboxLimits(1 << 30, 16, 1 << 20), ("cwd", "home", "scratch")
    with IsolatedSandbox(limits, PathRules(), 4096) as sandbox:
        for folder in folders:
            sandbox.put(folder, [], writable=True)
        command, environment = ["sh", "-c", "exit 0"], {"PATH": os.defpath}
        with _impossible_where_it_fails():
            how = 20.0, environment, {"cwd": True}
            ended = sandbox.run(SandboxProgram(command, *folders, *how))
    if ended.status != 0:
        why = f"a program in a sandbox ended with {ended.status or ended.cut}: {ended.output[:500]}"
        raise IsolationImpossible(why=why)


@contextmanager
def _impossible_where_it_fails() -> Iterator[None]:
    try:
        yield
    except SandboxFailed as error:
        raise IsolationImpossible(why=error.facts["why"]) from error
    except OSError as error:
        raise IsolationImpossible(why=error) from error
