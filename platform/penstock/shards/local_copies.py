"""Local copies of the files of shards: in a directory, within a bound, shared by processes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.directories import make_directory, open_private
from penstock.safe_names import sha256_digits
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import ReadableStore, check_digest, copy_part
from penstock.shards.manifest import ShardFile
from penstock.storage import FileStore, ObjectStore

#: Of Parquet, and of its columns in a form that is read faster (column_copies.py).
COLUMNS_SUFFIX = ".columns-2"
_SUFFIXES = (".parquet", ".columns-1", COLUMNS_SUFFIX)

#: Below a data directory.
CACHE_FOLDER = "cache/shards"


class LocalCopies:
    """Copies in a directory. When they exceed `bytes_max`, the least recently used are deleted; a
    copy that is being read stays readable until it is closed, as files do."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self.directory = directory
        self._bytes_max = bytes_max
        self._copies = FileStore(directory)

    def find(self, store: ReadableStore, path: str, part: ShardFile) -> tuple[ObjectStore, str]:
        """Made where there is none. Raises ShardDamaged, and what the store raises."""
        name = f"{sha256_digits(part.sha256)}.parquet"
        if not self._is_there(name, part):
            make_directory(self.directory)
            with self.locked(part):
                if not self._is_there(name, part):  # another process may have been quicker
                    self.make_room(part.bytes)
                    copy_part(store, path, self._copies, name, part)
        return self._copies, name

    def drop(self, part: ShardFile) -> None:
        """Forget a copy that turned out to be damaged, unless another has fetched it again."""
        name = f"{part.sha256}.parquet"
        with self.locked(part):
            try:
                check_digest(self._copies, name, part)
            except ShardDamaged:
                self._copies.delete(name)

    def forget(self) -> int:
        """Delete all copies; how many."""
        copies = list(self._all("*"))
        for path in copies:
            path.unlink(missing_ok=True)
        return len(copies)

    def _all(self, more: str = "") -> Iterator[Path]:
        """Of Parquet and of columns; with `more` those that are being written, too."""
        for suffix in _SUFFIXES:
            yield from self.directory.glob(f"*{suffix}{more}")

    def _is_there(self, name: str, part: ShardFile) -> bool:
        path = self.directory / name
        with suppress(FileNotFoundError):
            if path.stat().st_size == part.bytes:
                os.utime(path)
                return True
        return False

    def make_room(self, needed: int) -> None:
        copies = []
        for path in self._all():
            with suppress(FileNotFoundError):  # another process clears up too
                status = path.stat()
                copies.append((status.st_mtime_ns, status.st_size, path))
        room = self._bytes_max - needed - sum(size for _, size, _ in copies)
        for _, size, path in sorted(copies):
            if room >= 0:
                return
            path.unlink(missing_ok=True)
            room += size

    @contextmanager
    def locked(self, part: ShardFile, what: str = "") -> Iterator[None]:
        """`what` is made of the part: a copy of columns is made from one of Parquet."""
        path = self.directory / f"{sha256_digits(part.sha256)}{what}.lock"
        with open_private(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
