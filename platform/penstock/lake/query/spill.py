"""Spilling: folders for data that statements cannot keep in memory, and the rate of writing."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING

import msgspec

from penstock.core.files import make_directory

if TYPE_CHECKING:
    import duckdb

#: Below the data directory.
SPILL_FOLDER = "tmp"
#: Room for the digests of a million sessions.
_SORTING_MEMORY = "256MB"


@contextmanager
def spill_folder(data: Path) -> Iterator[Path]:
    """Reserve the name of a folder that a statement may make. A lock says that it is in use."""
    above = data / SPILL_FOLDER
    make_directory(above)
    descriptor = os.open(above, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        folder = above / token_hex(8)
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextmanager
def sorting_engine(data: Path) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Open an engine for work of our own, with little memory. The rest is on disk until the end."""
    import duckdb

    with spill_folder(data) as folder:
        configuration: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": _SORTING_MEMORY,
            "temp_directory": str(folder),
            "autoload_known_extensions": False,
        }
        with duckdb.connect(":memory:", config=configuration) as connection:
            yield connection


def remove_left_spill(data: Path) -> int:
    """Remove the folders of killed processes, unless a statement runs. Returns how many."""
    above = data / SPILL_FOLDER
    if not above.is_dir():
        return 0
    descriptor = os.open(above, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left = [folder for folder in above.iterdir() if folder.is_dir()]
        for folder in left:
            rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return 0
    finally:
        os.close(descriptor)
    return len(left)


# The rate at which a statement may write: acknowledgements wait for the same disk

#: Bytes without a limit. Most statements that do not fit into memory need no more.
FREE_BYTES = 64 << 20
LOOK_SECONDS = 0.05


class SpillRate(msgspec.Struct, frozen=True):
    """A limit on writing. Zero bytes per second is no limit."""

    bytes_per_second: int
    started_s: float

    def exceeded(self, written_bytes: int, now_s: float) -> bool:
        allowed = FREE_BYTES + self.bytes_per_second * (now_s - self.started_s)
        return self.bytes_per_second > 0 and written_bytes > allowed


def written_by(pid: int) -> int:
    try:
        counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    _, _, count = counters.partition("\nwrite_bytes: ")
    return int(count.partition("\n")[0] or 0)


def begin_writing(folder: str) -> None:
    if sys.platform != "linux":
        return
    with suppress(OSError):  # a statement removes its files whenever it likes
        for file in os.scandir(folder):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
