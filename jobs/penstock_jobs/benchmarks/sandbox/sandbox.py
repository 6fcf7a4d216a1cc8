"""What a sandbox is, and the plain one for machines on which none can be isolated.

A sandbox has named folders. Files are put into a folder from outside, programs run one after
another, and what they left is read from outside.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, Self

from penstock_jobs.benchmarks.errors import SandboxFailed
from penstock_jobs.benchmarks.sandbox.folder_files import (
    File,
    FilePrint,
    changes_in,
    read_plain,
    write_folder,
)

#: The limit at which a program was ended.
ProgramCut = Literal["time", "memory"]
#: So many changed files are named.
CHANGES_MAX = 100
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class SandboxLimits:
    """For all programs in a sandbox together."""

    memory_bytes: int
    processes: int
    disk_bytes: int


@dataclass(frozen=True)
class PathRules:
    """What programs may see of the machine, besides its programs. All paths are absolute."""

    hidden: Sequence[str] = ()
    #: Readable though they lie in a place that is hidden by itself, such as /tmp.
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
    #: Disk space besides that of the sandbox's limits.
    disk_bytes_more: int = 0


@dataclass(frozen=True)
class ProgramEnd:
    #: As a shell reports it: 128 + N for the signal N. None where it was cut off.
    status: int | None
    cut: ProgramCut | None
    seconds: float
    #: The middle of a long output is left out.
    output: str
    #: Addresses that it dialled and that never answered.
    unreachable: tuple[str, ...] = ()


class Sandbox(ABC):
    """Use as a context manager: afterwards nothing of it is left."""

    @abstractmethod
    def path(self, folder: str) -> str:
        """Where programs find a folder."""

    @abstractmethod
    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        """Make a folder with these files in it. Raises SandboxFailed."""

    @abstractmethod
    def run(self, program: SandboxProgram) -> ProgramEnd:
        """Until it and all that it started have ended. Raises SandboxFailed, InvalidInput."""

    @abstractmethod
    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        """A plain file that a program left; None where there is none, or a larger one."""

    @abstractmethod
    def changed(self, folder: str) -> list[str]:
        """The paths of files that differ from what was put into the folder."""

    @abstractmethod
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
        space = max(self._half - len(self._head), 0)
        self._head += piece[:space]
        self._tail += piece[space:][-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out > 0 else b""
        return (bytes(self._head) + middle + bytes(tail)).decode(errors="replace")


_START_LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.execvp(sys.argv[2], sys.argv[2:])
"""


class PlainSandbox(Sandbox):
    """A folder. Programs run as the caller does, and see what the caller sees. Time and output are
    bounded, and the memory of each process. What leaves its process group outlives it."""

    def __init__(self, limits: SandboxLimits, output_bytes_max: int) -> None:
        self._limits = limits
        self._output_bytes_max = output_bytes_max
        self._folder = Path(mkdtemp(prefix="penstock-bench-")).resolve()
        self._prints: dict[str, dict[str, FilePrint]] = {}

    def path(self, folder: str) -> str:
        return str(self._folder / folder)

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        try:
            Path(self.path(folder)).mkdir()
            write_folder(self.path(folder), files)
        except OSError as error:
            raise SandboxFailed(why=str(error)) from error
        self._prints[folder] = {file.path: FilePrint.of(file) for file in files}

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        return read_plain(self.path(folder), name, bytes_max)

    def changed(self, folder: str) -> list[str]:
        return changes_in(self.path(folder), self._prints[folder])[:CHANGES_MAX]

    def run(self, program: SandboxProgram) -> ProgramEnd:
        limited = [sys.executable, "-ISc", _START_LIMITED, str(self._limits.memory_bytes)]
        began = time.monotonic()
        process = subprocess.Popen(
            [*limited, *program.command],
            cwd=self.path(program.cwd),
            env={**program.environment, "TMPDIR": self.path(program.scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        excerpt = Excerpt(self._output_bytes_max)
        reading = threading.Thread(target=_read_output, args=[process, excerpt], daemon=True)
        reading.start()
        status: int | None = None
        cut: ProgramCut | None = None
        try:
            code = process.wait(program.seconds)
            status = code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            cut = "time"
        finally:
            seconds = time.monotonic() - began
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reading.join(timeout=1.0)  # what left the group may still hold the pipe
        return ProgramEnd(status, cut, seconds, excerpt.text())

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_output(process: subprocess.Popen[bytes], excerpt: Excerpt) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        while piece := os.read(output.fileno(), READ_BYTES):
            excerpt.add(piece)
