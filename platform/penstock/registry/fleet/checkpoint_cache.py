"""A cache of checkpoints in a folder: fetched, verified, reused, and removed."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from penstock.core.errors import InvalidInput, PenstockError, one_line
from penstock.core.files import (
    DIGEST_PREFIX,
    FILE_MODE,
    is_relative_name,
    make_directory,
    open_private,
    sha256_digest,
    sync_directory,
)
from penstock.core.settings import Settings
from penstock.registry.checkpoints.digests import (
    CheckpointFile,
    SourceFile,
    digest_of,
    files_below,
    folder_digest,
    source_files,
)
from penstock.registry.fleet import FleetSettings
from penstock.registry.fleet.registry_source import ChainLink

_FETCHING = "fetching-"
_REMOVING = "removing-"
_LOCK = "lock"
#: A killed sidecar holds the lock until its command has ended too.
_LOCK_SECONDS_MAX = 5.0
_LOOK_SECONDS = 0.05
_COPY_NAME = re.compile(rf"(?:{_FETCHING})?([0-9a-f]{{64}})")

Progress = Callable[[int], object]
#: Name, size, modification time and inode of each file.
_Marks = tuple[tuple[str, int, int, int], ...]


class FetchFailed(PenstockError, exit_status=3):
    """The checkpoint {checkpoint} could not be fetched from {uri}: {why}."""


class CopyMismatch(PenstockError):
    """The files of {checkpoint} at {uri} have the digest {found}, not the registered {digest}. They
    were not loaded."""


class FolderTaken(PenstockError, exit_status=2):
    """Another sidecar uses {folder}. Give each its own folder with --into."""


def files_of(link: ChainLink, settings: Settings) -> list[SourceFile]:
    """The files of a checkpoint. Raises FetchFailed, OSError."""
    scheme = urlsplit(link.uri).scheme
    if scheme not in ("", "file", "s3"):
        raise _failed(link, f"{scheme}: is not supported; use a path, file:// or s3://")
    try:
        files, _ = source_files(link.uri, settings)
    except PenstockError as error:
        raise _failed(link, one_line(error)) from error
    for file in files:
        if not is_relative_name(file.path):
            raise _failed(link, f"its file {file.path!r} has an unusable name")
    if not files:
        raise _failed(link, "there are no files")
    return files


def _failed(link: ChainLink, why: str) -> FetchFailed:
    return FetchFailed(checkpoint=link.name, uri=link.uri, why=why)


class CachedCopy(msgspec.Struct, frozen=True):
    """A copy in the cache. `fetched` says that it was missing or `damaged`."""

    bytes: int
    fetched: bool
    damaged: bool = False


@dataclass
class CheckpointCache:
    """Not thread-safe."""

    directory: Path
    settings: Settings
    _verified: dict[str, _Marks] = field(default_factory=dict)
    _kept: set[str] = field(default_factory=set)

    def path(self, link: ChainLink) -> Path:
        return self.directory / sha256_digest(link.digest).removeprefix(DIGEST_PREFIX)

    def keep(self, links: Iterable[ChainLink]) -> None:
        """Protect these checkpoints from removal, and no others."""
        self._kept = {link.digest.removeprefix(DIGEST_PREFIX) for link in links}

    def provide(self, link: ChainLink, progress: Progress) -> CachedCopy:
        """Provide a verified copy. Raises FetchFailed, CopyMismatch, and what `progress` raises."""
        path = self.path(link)
        exists = path.exists()
        try:
            fetched = not self._is_verified(link, path, progress)
            if fetched:
                self._fetch(link, path, progress)
                self._verified[link.digest] = _marks(path)
        except OSError as error:
            raise _failed(link, f"{error.filename or path}: {error.strerror or error}") from error
        size = sum(size for _, size, _, _ in self._verified[link.digest])
        return CachedCopy(size, fetched, damaged=fetched and exists)

    def remove_old(self, most: int | None = None) -> list[str]:
        """Remove unprotected copies beyond `most`, the least recently used first; returns their
        digests."""
        if most is None:
            most = self.settings.room(FleetSettings).follow_copies_max
        for remains in self.directory.glob(f"{_REMOVING}*"):  # left by a killed sidecar
            shutil.rmtree(remains)
        others = []
        for path in self.directory.iterdir():
            match = _COPY_NAME.fullmatch(path.name)
            if match is not None and match[1] not in self._kept:
                others.append(path)
        others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        removed = []
        for path in others[most:]:
            _remove(path)
            self._verified.pop(DIGEST_PREFIX + path.name, None)
            removed.append(DIGEST_PREFIX + path.name.removeprefix(_FETCHING))
        return removed

    def _is_verified(self, link: ChainLink, path: Path, progress: Progress) -> bool:
        known = self._verified.pop(link.digest, None)
        if not path.is_dir():
            return False
        try:
            marks = _marks(path)
            if known != marks:
                files, _ = source_files(str(path), self.settings)
                if _copy(files, path, link.digest, progress) != link.digest:
                    return False
        except InvalidInput:  # a link to a folder, which no copy contains
            return False
        self._verified[link.digest] = marks
        os.utime(path)  # recently used
        return True

    def _fetch(self, link: ChainLink, path: Path, progress: Progress) -> None:
        staging = path.with_name(_FETCHING + path.name)
        files = files_of(link, self.settings)
        used = _used_bytes(staging, files)
        needed = sum(file.size for file in files) - used
        if needed > shutil.disk_usage(self.directory).free:  # make room
            self.remove_old(0)
        free = shutil.disk_usage(self.directory).free
        if needed > free:
            raise _failed(
                link, f"it needs {needed} bytes, but {self.directory} has only {free} free"
            )
        digest = _copy(files, staging, link.digest, progress)
        if digest != link.digest and used:  # the remains of an earlier try may be damaged
            _remove(staging)
            digest = _copy(files, staging, link.digest, progress)
        if digest != link.digest:
            _remove(staging)
            raise CopyMismatch(checkpoint=link.name, uri=link.uri, found=digest, digest=link.digest)
        for folder, _, _ in os.walk(staging):
            sync_directory(Path(folder))
        if path.exists():
            _remove(path)
        staging.rename(path)
        sync_directory(self.directory)


@contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Lock a folder until the block ends. Raises FolderTaken, InvalidInput."""
    try:
        make_directory(directory)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error
    try:
        until = time.monotonic() + _LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise FolderTaken(folder=directory) from None
                time.sleep(_LOOK_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _remove(path: Path) -> None:
    """Remove a copy. It is renamed first, so a half removed one is never taken for a copy."""
    aside = path.with_name(_REMOVING + path.name)
    if aside.exists():
        shutil.rmtree(aside)
    path.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()


def _marks(path: Path) -> _Marks:
    statuses = ((file, file.stat()) for file in sorted(files_below(path)))
    return tuple((str(file), at.st_size, at.st_mtime_ns, at.st_ino) for file, at in statuses)


def _used_bytes(staging: Path, files: list[SourceFile]) -> int:
    if not staging.is_dir():
        return 0
    sizes = {file.path: file.size for file in files}
    used = 0
    for path in list(files_below(staging)):
        if sizes.get(path.relative_to(staging).as_posix()) == path.stat().st_size:
            used += path.stat().st_size
        else:
            path.unlink()
    return used


def _copy(files: list[SourceFile], folder: Path, expected: str, progress: Progress) -> str:
    """Copy files; returns the digest of the folder, or of the only file if it is the expected
    one."""
    make_directory(folder)
    parts = []
    for file in files:
        path = folder / file.path
        if path.is_file():
            with path.open("rb") as source:
                hashed = digest_of(source, progress)
        else:
            make_directory(path.parent)
            with file.open() as original, open_private(path, "wb") as target:
                hashed = digest_of(original, progress, target)
                target.flush()
                os.fsync(target.fileno())
        parts.append(CheckpointFile(file.path, *hashed))
    if len(parts) == 1 and "/" not in parts[0].path and DIGEST_PREFIX + parts[0].sha256 == expected:
        return expected
    return folder_digest(parts)
