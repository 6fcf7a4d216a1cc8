"""The protocol of an object store, immutable files by name, and its twin in a directory."""

import io
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.core.files import make_directory, open_private, relative_name, sync_directory

_UNFINISHED = ".unfinished"


class StoredObject(NamedTuple):
    name: str
    size: int


class ObjectStore(Protocol):
    """Immutable objects by name. An object is whole or absent.

    Names are relative, with `/` between parts; others raise NameUnsafe. A remote store raises
    StoreUnreachable or StoreRefused."""

    @property
    def local(self) -> bool:
        """Whether an address is a path on this machine."""

    def check(self) -> None:
        """Check that the store can be used."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file to write. It appears, durably, when the block ends well."""

    def open(self, name: str) -> pa.NativeFile:
        """Open a file to read. Raises FileNotFoundError."""

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """List objects, and remains of unfinished writes."""

    def delete(self, name: str) -> None:
        """Remove an object, and remains of an unfinished write of it. It may be absent."""

    def address(self, name: str) -> str:
        """The address of an object for a query engine; for an empty name the store's."""


class RandomAccess(io.RawIOBase):
    """A file that is read in pieces. Each thread has its own position."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = threading.local()

    def piece(self, start: int, length: int) -> Any:
        """Bytes, or a buffer of them."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._at, "position", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._at.position = origin + offset
        return origin + offset

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> Any:
        """Read without a copy, as Arrow prefers it."""
        start = self.tell()
        left = max(0, self._size - start)
        content = self.piece(start, left if size is None or size < 0 else min(size, left))
        self._at.position = start + len(content)
        return content


class FileStore:
    local = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self) -> None:
        """Do nothing: directories are made when they are needed."""

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = self._path(name)
        make_directory(path.parent)
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            with open_private(unfinished, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)

    def open(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self._path(name)), "rb")

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        folder = self._path(prefix.rstrip("/")) if prefix else self._root
        for path in sorted(folder.rglob("*")):
            with suppress(FileNotFoundError):  # collected while we look
                if path.is_file():
                    name = str(path.relative_to(self._root)).removesuffix(_UNFINISHED)
                    yield StoredObject(name, path.stat().st_size)

    def delete(self, name: str) -> None:
        path = self._path(name)
        path.unlink(missing_ok=True)
        path.with_name(path.name + _UNFINISHED).unlink(missing_ok=True)

    def address(self, name: str) -> str:
        return str(self._path(name) if name else self._root)

    def _path(self, name: str) -> Path:
        return self._root / relative_name(name)


# Errors


class StoreUnreachable(
    PenstockError, exit_status=3, http_status=503, http_headers={"Retry-After": "5"}
):
    """The object store {where} cannot be reached: {why}.
    Penstock tries again as long as it has work there. Check whether the service is up."""


class StoreRefused(PenstockError, exit_status=3, http_status=503):
    """The object store {where} refused: {why}."""
