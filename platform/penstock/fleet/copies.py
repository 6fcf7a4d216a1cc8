"""Copies of checkpoints in a folder: fetched, verified, used again, and removed.

A copy is DIR/DIGITS, named by the digits of its digest. It appears there whole and verified, by a
rename; what was being fetched when a sidecar died lies in DIR/fetching-DIGITS, and its complete
files are used by the next one.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.checkpoints.digests import CheckpointFile, files_below, folder_digest, path_of
from penstock.directories import make_directory, sync_directory
from penstock.errors import InvalidInput, PenstockError
from penstock.fleet.errors import CopyMismatch, FetchFailed, FolderTaken
from penstock.fleet.registry_source import Piece
from penstock.fleet.settings import FleetSettings
from penstock.settings import Settings
from penstock.storage import open_store


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class SourceFile:
    """`path` is where it goes, within the copy's folder."""

    path: str
    size: int
    open: Callable[[], AbstractContextManager[Readable]]


def files_of(piece: Piece, settings: Settings) -> list[SourceFile]:
    """Raises FetchFailed, InvalidInput, OSError, StoreUnreachable, StoreRefused, SettingInvalid,
    ExtraMissing."""
    scheme = urlsplit(piece.uri).scheme
    if scheme in ("", "file"):
        found = list(_in_path(path_of(piece.uri)))
    elif scheme == "s3":
        found = list(_in_bucket(piece.uri, settings))
    else:
        why = f"{scheme}: is not fetched; a path, file:// and s3:// are"
        raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why)
    for one in found:
        if why := _unfit(one.path):
            raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why)
    if not found:
        raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why="there are no files")
    return found


def _in_path(path: Path) -> Iterator[SourceFile]:
    below = list(files_below(path)) if path.is_dir() else [path]
    for file in below:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file", str(file))
        name = file.relative_to(path).as_posix() if file != path else path.name
        yield SourceFile(name, status.st_size, _opener(file))


def _opener(file: Path) -> Callable[[], AbstractContextManager[Readable]]:
    return lambda: file.open("rb")


def _in_bucket(uri: str, settings: Settings) -> Iterator[SourceFile]:
    """As digests are taken: a folder is what has objects below it, else it is an object."""
    folder = open_store(replace(settings, store_url=uri))
    found = sorted(folder.list())
    if found:
        for one in found:
            yield SourceFile(one.name, one.size, _object_opener(folder, one.name))
        return
    address = urlsplit(uri)
    above, _, name = address.path.rstrip("/").rpartition("/")
    store = open_store(replace(settings, store_url=address._replace(path=above).geturl()))
    with store.open(unquote(name)) as file:
        size = file.size()
    yield SourceFile(unquote(name), size, _object_opener(store, unquote(name)))


def _object_opener(store: Any, name: str) -> Callable[[], AbstractContextManager[Readable]]:
    return lambda: store.open(name)


def _unfit(name: str) -> str:
    """Why a file of this name cannot be written into a folder; nothing where it can."""
    path = PurePosixPath(name)
    parts = name.split("/")
    if path.is_absolute() or "\0" in name or any(part in ("", ".", "..") for part in parts):
        return f"its file {name!r} would lie outside of its folder"
    return ""


_BLOCK_BYTES = 4 * 1024 * 1024
_FETCHING = "fetching-"
_REMOVING = "removing-"
_LOCK = "lock"
#: A sidecar that was killed holds the lock until its command has ended too.
_LOCK_SECONDS_MAX = 5.0
_LOOK_SECONDS = 0.05
_DIGITS = 64
_PREFIX = "sha256:"

#: Called for each block, with its bytes; it raises where the copy is wanted no more.
Progress = Callable[[int], object]
#: Of each file: name, size, time of the last change, and which it is.
_Marks = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Taken:
    """A copy of so many bytes; whether it had to be fetched, since there was none, or a damaged
    one."""

    bytes: int
    fetched: bool
    damaged: bool = False


class Copies:
    """Not shared between threads."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self._settings = settings
        #: What this process has verified, and how its files looked then.
        self._verified: dict[str, _Marks] = {}
        self._kept: set[str] = set()

    def path(self, piece: Piece) -> Path:
        return self.directory / _digits(piece.digest)

    def keep(self, pieces: Iterable[Piece]) -> None:
        """These are not removed from now on, and others may be."""
        self._kept = {_digits(one.digest) for one in pieces}

    def take(self, piece: Piece, progress: Progress) -> Taken:
        """See that there is a verified copy. Raises FetchFailed, CopyMismatch, and what
        `progress` raises."""
        path = self.path(piece)
        there = path.exists()
        try:
            if self._is_verified(piece, path, progress):
                return Taken(_size(self._verified[piece.digest]), fetched=False)
            self._fetch(piece, path, progress)
            self._verified[piece.digest] = _marks(path)
        except OSError as error:
            why = f"{error.filename or path}: {error.strerror or error}"
            raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why) from error
        return Taken(_size(self._verified[piece.digest]), fetched=True, damaged=there)

    def remove_old(self) -> list[str]:
        """Remove the copies beyond PENSTOCK_FOLLOW_COPIES_MAX, the least recently used first, and
        none of those that are kept; the digests of what was removed."""
        return self._remove_beyond(self._settings.room(FleetSettings).follow_copies_max)

    def _remove_beyond(self, most: int) -> list[str]:
        for one in self.directory.glob(f"{_REMOVING}*"):  # a sidecar was killed meanwhile
            shutil.rmtree(one)
        others = [one for one in self._copies() if _name(one) not in self._kept]
        others.sort(key=lambda one: one.stat().st_mtime_ns, reverse=True)
        for one in others[most:]:
            _remove(one)
            self._verified.pop(_PREFIX + one.name, None)
        return [_PREFIX + _name(one) for one in others[most:]]

    def _copies(self) -> Iterator[Path]:
        for one in self.directory.iterdir():
            digits = _name(one)
            if len(digits) == _DIGITS and not set(digits) - set("0123456789abcdef"):
                yield one

    def _is_verified(self, piece: Piece, path: Path, progress: Progress) -> bool:
        if not path.is_dir():
            self._verified.pop(piece.digest, None)
            return False
        known = self._verified.pop(piece.digest, None)
        try:
            marks = _marks(path)
            if known != marks and _digest_of(path, piece.digest, progress) != piece.digest:
                return False
        except InvalidInput:  # a link to a folder, which no copy has
            return False
        self._verified[piece.digest] = marks
        os.utime(path)  # used just now
        return True

    def _fetch(self, piece: Piece, path: Path, progress: Progress) -> None:
        staging = path.with_name(_FETCHING + path.name)
        files = self._files_of(piece)
        used = _used_bytes(staging, files)
        self._make_room(piece, sum(one.size for one in files) - used)
        found = _copy(piece, files, staging, progress)
        if found != piece.digest and used:  # remains of an earlier try may be what is wrong
            _remove(staging)
            found = _copy(piece, files, staging, progress)
        if found != piece.digest:
            _remove(staging)
            names = {"checkpoint": piece.name, "uri": piece.uri}
            raise CopyMismatch(**names, found=found, digest=piece.digest)
        for folder, _, _ in os.walk(staging):
            sync_directory(Path(folder))
        if path.exists():
            _remove(path)
        staging.rename(path)
        sync_directory(self.directory)

    def _files_of(self, piece: Piece) -> list[SourceFile]:
        try:
            return files_of(piece, self._settings)
        except FetchFailed:
            raise
        except PenstockError as error:
            why = " ".join(str(error).split())
            raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why) from error

    def _make_room(self, piece: Piece, needed: int) -> None:
        """A full disk is a reason to keep fewer copies."""
        if needed > shutil.disk_usage(self.directory).free:
            self._remove_beyond(0)
        free = shutil.disk_usage(self.directory).free
        if needed > free:
            why = f"it needs {needed} bytes, and {self.directory} has {free} free"
            raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why)


@contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Work alone in a folder, which is made if it is not there; the descriptor of the lock, which
    is held until each process that has it has ended. Raises FolderTaken, InvalidInput."""
    try:
        make_directory(directory)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error
    try:
        until = time.monotonic() + _LOCK_SECONDS_MAX
        while not _try_lock(lock):
            if time.monotonic() >= until:
                raise FolderTaken(folder=directory)
            time.sleep(_LOOK_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _digits(digest: str) -> str:
    return digest.removeprefix(_PREFIX)


def _name(path: Path) -> str:
    """The digits of what it is, or is to become."""
    return path.name.removeprefix(_FETCHING)


def _remove(path: Path) -> None:
    """Out of the way first: what is half removed is no copy, and no beginning of one."""
    aside = path.with_name(_REMOVING + path.name)
    if aside.exists():
        shutil.rmtree(aside)
    path.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()


def _marks(path: Path) -> _Marks:
    found = []
    for file in sorted(files_below(path)):
        status = file.stat()
        found.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)


def _size(marks: _Marks) -> int:
    return sum(size for _, size, _, _ in marks)


def _digest_of(path: Path, wanted: str, progress: Progress) -> str:
    """Of a copy: that of its only file, where that is the one wanted, or that of the folder."""
    parts = [
        CheckpointFile(file.relative_to(path).as_posix(), *_hash(file, progress))
        for file in files_below(path)
    ]
    return _whole(parts, wanted)


def _whole(parts: list[CheckpointFile], wanted: str) -> str:
    if len(parts) == 1 and "/" not in parts[0].path and _PREFIX + parts[0].sha256 == wanted:
        return wanted
    return folder_digest(parts)


def _hash(file: Path, progress: Progress) -> tuple[int, str]:
    size, sha256 = 0, hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            sha256.update(block)
            size += len(block)
            progress(len(block))
    return size, sha256.hexdigest()


def _used_bytes(staging: Path, files: list[SourceFile]) -> int:
    """Of files that are there already, and everything else out of the way."""
    if not staging.is_dir():
        return 0
    wanted = {one.path: one.size for one in files}
    used = 0
    for file in list(files_below(staging)):
        if wanted.get(file.relative_to(staging).as_posix()) == file.stat().st_size:
            used += file.stat().st_size
        else:
            file.unlink()
    return used


def _copy(piece: Piece, files: list[SourceFile], staging: Path, progress: Progress) -> str:
    """The digest of what is there then."""
    make_directory(staging)
    parts = []
    for one in files:
        target = staging / one.path
        if target.is_file():
            parts.append(CheckpointFile(one.path, *_hash(target, progress)))
        else:
            parts.append(CheckpointFile(one.path, *_copy_file(one, target, progress)))
    return _whole(parts, piece.digest)


def _copy_file(one: SourceFile, target: Path, progress: Progress) -> tuple[int, str]:
    target.parent.mkdir(parents=True, exist_ok=True)
    size, sha256 = 0, hashlib.sha256()
    with one.open() as source, target.open("wb") as file:
        while block := source.read(_BLOCK_BYTES):
            progress(len(block))
            sha256.update(block)
            size += len(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return size, sha256.hexdigest()
