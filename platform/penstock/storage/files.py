"""The embedded object store: a directory. A file is written beside its name, synced, renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from penstock.directories import make_directory, sync_directory
from penstock.storage import StoredObject

_UNFINISHED = ".unfinished"


class FileStore:
    """An ObjectStore in a directory."""

    local = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self) -> None:
        """Directories are made when they are needed."""

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = self._root / name
        make_directory(path.parent)
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            with unfinished.open("wb") as file:
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
        return pa.OSFile(str(self._root / name), "rb")

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        for path in sorted((self._root / prefix).rglob("*")):
            with suppress(FileNotFoundError):  # collected while we look
                if path.is_file():
                    name = str(path.relative_to(self._root)).removesuffix(_UNFINISHED)
                    yield StoredObject(name, path.stat().st_size)

    def delete(self, name: str) -> None:
        path = self._root / name
        path.unlink(missing_ok=True)
        path.with_name(path.name + _UNFINISHED).unlink(missing_ok=True)

    def address(self, name: str) -> str:
        return str(self._root / name)
