"""Local copies of shard files from a store that is elsewhere.

A copy has its checksum as its name, and appears once the checksum was found to be right. Processes
of one machine share the copies: while one fetches a file the others wait for it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.directories import make_directory
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import check_digest, copy_part
from penstock.shards.manifest import PartFile, RoutesFile
from penstock.storage import ObjectStore
from penstock.storage.files import FileStore

_SUFFIX = ".parquet"
_LOCK_SUFFIX = ".lock"


class LocalCopies:
    """Copies in a directory. When they are over `bytes_max`, those unused for longest go; one that
    is being read stays readable until it is closed, as files do."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._copies = FileStore(directory)

    def find(
        self, store: ObjectStore, path: str, part: PartFile | RoutesFile
    ) -> tuple[ObjectStore, str]:
        """Where the copy is, which is made when there is none. Raises ShardDamaged, and what the
        store raises."""
        name = part.sha256 + _SUFFIX
        if self._is_there(name, part):
            return self._copies, name
        make_directory(self._directory)
        with self._locked(part.sha256):
            if not self._is_there(name, part):  # another process may have been quicker
                self._make_room(part.bytes)
                copy_part(store, path, self._copies, name, part)
        return self._copies, name

    def drop(self, part: PartFile | RoutesFile) -> None:
        """Forget a copy that turned out to be damaged, unless another has fetched it again."""
        name = part.sha256 + _SUFFIX
        with self._locked(part.sha256):
            try:
                check_digest(self._copies, name, part)
            except ShardDamaged:
                self._copies.delete(name)

    def _is_there(self, name: str, part: PartFile | RoutesFile) -> bool:
        path = self._directory / name
        try:
            if path.stat().st_size != part.bytes:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, needed: int) -> None:
        found = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):  # another process clears up too
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        room = self._bytes_max - needed - sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if room >= 0:
                return
            path.unlink(missing_ok=True)
            room += size

    @contextmanager
    def _locked(self, digest: str) -> Iterator[None]:
        path = self._directory / (digest + _LOCK_SUFFIX)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
