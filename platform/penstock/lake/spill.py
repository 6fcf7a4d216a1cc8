"""Folders for what statements cannot keep in memory: gone with the statement, and after a kill at
the next start of a service."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree

from penstock.directories import DIRECTORY_MODE, make_directory

#: Below the data directory.
SPILL_FOLDER = "tmp"


@contextmanager
def spill_folder(data: Path) -> Iterator[Path]:
    """A new folder. Whoever uses it holds its lock, which ends with the process."""
    above = data / SPILL_FOLDER
    make_directory(above)
    folder = above / token_hex(8)
    with _locked(above):  # nobody clears up between the two steps
        folder.mkdir(DIRECTORY_MODE)
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_left_spill(data: Path) -> int:
    """Remove the folders that no process uses any more; how many there were."""
    above = data / SPILL_FOLDER
    if not above.is_dir():
        return 0
    with _locked(above):
        left = [folder for folder in above.iterdir() if folder.is_dir() and not _in_use(folder)]
        for folder in left:
            rmtree(folder, ignore_errors=True)
    return len(left)


def _in_use(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
