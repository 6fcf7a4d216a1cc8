"""Sandboxes: named folders, in which programs run one after another."""

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

import msgspec

from penstock.backends.execution.confinement import plain_command
from penstock.backends.execution.guarded_process import Channel, GuardedProcess, run_guarded
from penstock.core.errors import PenstockError
from penstock.core.settings import MIB
from penstock_jobs.benchmarks.sandbox import network, process
from penstock_jobs.benchmarks.sandbox.network import Relay
from penstock_jobs.benchmarks.sandbox.process import call_filter
from penstock_jobs.benchmarks.sandbox.root_folder import PLACE
from penstock_jobs.benchmarks.sandbox.sandbox_files import (
    File,
    NamedFolders,
    hidden_places,
    homes,
    own_programs,
    unreadable_paths,
)

_READ_BYTES = 1 << 16


class IsolationImpossible(PenstockError):
    """Attempts cannot be isolated on this machine: {why}. Nothing was run. Isolation needs Linux
    5.14 or newer and the right to make namespaces (see docs/benchmarks.md). With --no-isolation
    the agent runs with your rights, and every result is marked so."""


class SandboxFailed(PenstockError):
    """The sandbox of an attempt failed: {why}."""


@dataclass(frozen=True)
class SandboxLimits:
    memory_bytes: int
    processes: int
    disk_bytes: int


@dataclass(frozen=True)
class PathRules:
    """Hidden and visible paths of the machine, all absolute. Its programs are always visible."""

    hidden: Sequence[str] = ()
    #: Readable even if they are in a hidden place, such as /tmp or a home.
    visible: Sequence[str] = ()


@dataclass(frozen=True)
class SandboxRoot:
    """Folders over the machine's files: what `/usr` holds in one lies over the machine's `/usr`."""

    #: The first one lies over the others.
    layers: Sequence[str] = ()
    #: Programs may write everywhere. Started by root, they are root of their namespaces only.
    writable: bool = False
    #: A folder that gets `files`, all that was written. By default it is gone with the sandbox.
    kept: str | None = None
    #: A folder of the machine that programs may write to, at `cache`.
    cache: str | None = None
    #: The layers are all there is: the machine's files are not shown.
    whole: bool = False


@dataclass(frozen=True)
class SandboxProgram:
    command: Sequence[str]
    #: Folders of the sandbox: the working directory (or an absolute path), HOME and /tmp.
    cwd: str
    home: str
    scratch: str
    seconds: float
    environment: Mapping[str, str] = field(repr=False)
    #: Further folders, and whether it may write there.
    folders: Mapping[str, bool] = field(default_factory=dict)
    #: The only addresses that it may reach, as HOST:PORT.
    addresses: Sequence[str] = ()
    disk_bytes_more: int = 0
    #: Some of these folders at a second path.
    also_at: Mapping[str, str] = field(default_factory=dict)


class ProgramEnd(msgspec.Struct, frozen=True):
    #: As in a shell: 128 + N for the signal N. None if time or memory ended it.
    status: int | None
    cut: str | None
    seconds: float
    #: Without its middle if it is long.
    output: str
    #: Addresses that it called and that never answered.
    unreachable: tuple[str, ...] = ()
    #: Folders that no overlay covers. The program could therefore open no Unix socket at all.
    uncovered: Sequence[str] = ()


class Sandbox(Protocol):
    """A sandbox. Use it as a context manager; nothing of it is left afterwards.

    All methods may raise SandboxFailed."""

    def path(self, folder: str) -> str: ...
    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None: ...
    def run(self, program: SandboxProgram) -> ProgramEnd:
        """Run a program until it and all its children have ended. Raises InvalidInput."""
        ...

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        """Read a plain file. Returns None if there is none, or if it is larger."""

    def changed(self, folder: str) -> list[str]:
        """The changed files of a folder: a name, or a path where programs may write everywhere."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Excerpt:
    """The beginning and the end of a long output."""

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
    """A sandbox without isolation: programs see what the caller sees.

    Time, output, and each process's memory and CPU time are bounded, and the kernel refuses the
    same calls as in any sandbox. A process that leaves its group lives until its CPU time is up."""

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


#: User of programs that root starts. It owns no files.
_NOBODY = 65534
#: After its time and this, a program is ended from outside its sandbox.
_GRACE_SECONDS = 30.0
_ANSWER_BYTES_MAX = 16 * MIB


class IsolatedSandbox(Sandbox):
    """A sandbox in its own namespaces. Raises IsolationImpossible."""

    def __init__(
        self,
        limits: SandboxLimits,
        views: PathRules,
        output_bytes_max: int,
        root: SandboxRoot | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise IsolationImpossible(why=f"it needs Linux, and this is {sys.platform}")
        if call_filter(beside_others=False) is None:
            why = f"system calls cannot be filtered on the processor {platform.machine()}"
            raise IsolationImpossible(why=why)
        self._output_bytes_max = output_bytes_max
        self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        self._process = GuardedProcess(process.__name__, output=output, directory="/")
        self._control = Channel(self._process.end)
        os.close(output)
        try:
            self._open(limits, views, root or SandboxRoot())
        except BaseException:
            self.close()
            raise

    def _open(self, limits: SandboxLimits, views: PathRules, over: SandboxRoot) -> None:
        root = os.geteuid() == 0
        self._process.end.settimeout(30.0)
        opening = asdict(limits) | {
            "owner": (_NOBODY, _NOBODY) if root and not over.writable else None,
            "as_root": root and over.writable,
            "over": asdict(over) if over.layers or over.writable else None,
            "masked": unreadable_paths() if root and over.writable else [],
            "call_filter": call_filter(beside_others=False),
            "filter_without_unix": call_filter(beside_others=False, unix_sockets=False),
            "homes": homes(),
            "hidden": hidden_places(views.hidden),
            "visible": [
                *([] if over.writable else own_programs()),
                *(os.path.realpath(path) for path in views.visible),
            ],
        }
        with _impossible_where_it_fails():
            self._send(opening)
            self._answer("unshared")
            # Users have the same numbers on both sides.
            process_folder = Path(f"/proc/{self._process.process.pid}")
            if not root:
                (process_folder / "setgroups").write_text("deny")
            nobody = f"{_NOBODY} {_NOBODY} 1\n" if root else ""
            for name, number in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                users = f"{number} {number} 1\n{nobody}"
                # Packages of the machine have users of their own.
                (process_folder / name).write_text("0 0 65535\n" if opening["as_root"] else users)
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
                pass  # output from before the end
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
        self._process.stop(_GRACE_SECONDS)  # ends all programs in it
        os.close(self._output)


@cache
def check_isolation() -> None:
    """Run a program in a sandbox, once per process. Raises IsolationImpossible."""
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
