"""The room that keeps nothing from anybody: for machines on which none can be isolated.

Programs run as the caller does, and see what the caller sees. Time and output are bounded, and
the memory of each process; nothing else is. What leaves its process group outlives it.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from penstock_jobs.benchmarks.errors import RoomFailed
from penstock_jobs.benchmarks.rooms.files import File, Print, changes_in, read_plain, write_folder
from penstock_jobs.benchmarks.rooms.room import (
    CHANGES_MAX,
    Excerpt,
    ProgramCut,
    ProgramEnd,
    RoomLimits,
    RoomProgram,
)

_READ_BYTES = 1 << 16
_LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.execvp(sys.argv[2], sys.argv[2:])
"""


class PlainRoom:
    """A Room that is a folder."""

    def __init__(self, bounds: RoomLimits, output_bytes_max: int) -> None:
        self._bounds = bounds
        self._output_bytes_max = output_bytes_max
        self._folder = Path(mkdtemp(prefix="penstock-bench-")).resolve()
        self._put: dict[str, dict[str, Print]] = {}

    def path(self, folder: str) -> str:
        return str(self._folder / folder)

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        try:
            Path(self.path(folder)).mkdir()
            write_folder(self.path(folder), files)
        except OSError as error:
            raise RoomFailed(why=str(error)) from error
        self._put[folder] = {file.path: Print.of(file) for file in files}

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        return read_plain(self.path(folder), name, bytes_max)

    def changed(self, folder: str) -> list[str]:
        return changes_in(self.path(folder), self._put[folder])[:CHANGES_MAX]

    def run(self, program: RoomProgram) -> ProgramEnd:
        limited = [sys.executable, "-ISc", _LIMITED, str(self._bounds.memory_bytes)]
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
        reading = threading.Thread(target=_read, args=[process, excerpt], daemon=True)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _read(process: subprocess.Popen[bytes], excerpt: Excerpt) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        while piece := os.read(output.fileno(), _READ_BYTES):
            excerpt.add(piece)
