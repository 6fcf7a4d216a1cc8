"""Directories that a power loss does not take back, and that other users cannot read."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

#: What Penstock makes is its owner's alone, whatever the umask.
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
#: Less the umask: others read what trainers make outside of the data directory.
SHARED_MODE = 0o777
_OTHERS = 0o077


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Make a directory, with those above it."""
    if not path.is_dir():
        make_directory(path.parent, mode)
        path.mkdir(mode, exist_ok=True)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: Path, mode: str, **how: Any) -> Any:
    """Open a file, which is its owner's alone if it is made."""
    return open(path, mode, opener=_private, **how)


def make_private_once(path: Path, content: bytes) -> None:
    """Make a private file durably; of two processes that do, the first one's counts."""
    make_directory(path.parent)
    unfinished = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with open_private(unfinished, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        unfinished.unlink()
    sync_directory(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def narrow(directory: Path) -> bool:
    """Take a directory, with all in it, from everybody but its owner. False where it is theirs."""
    try:
        status = directory.stat()
    except OSError:
        return False
    shared = status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid()
    if shared or not status.st_mode & _OTHERS:
        return False
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if mode & _OTHERS and not stat.S_ISLNK(mode):
                    os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)  # noqa: PTH101
    directory.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return True
