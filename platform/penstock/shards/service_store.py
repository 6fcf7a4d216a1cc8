"""The files of shards as a service gives them, for readers that are far from the lake."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.directories import SHARED_MODE, make_directory
from penstock.lake.desk import Desk, LocalDesk
from penstock.safe_names import DIGEST_PREFIX, relative_name
from penstock.shards.calls import PIECE_BYTES_MAX, READ_SHARD_FILE, ShardFileQuestion
from penstock.shards.files import copy_part, files_of
from penstock.shards.manifest import (
    FOLDER,
    MANIFEST_NAME,
    Manifest,
    folder_of,
    manifest_name,
    read_manifest,
)
from penstock.shards.registered_shards import find_shard
from penstock.storage import FileStore, ObjectStore

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer


class _FilePieces(io.RawIOBase):
    """A file of a shard, from its beginning to its end."""

    def __init__(self, desk: Desk, shard: str, name: str) -> None:
        self._desk = desk
        self._shard, self._name = shard, name
        self._start = 0
        self._piece = self._next_piece()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        if not self._piece:
            self._piece = self._next_piece()
        room = memoryview(buffer).cast("B")
        count = min(len(room), len(self._piece))
        room[:count], self._piece = self._piece[:count], self._piece[count:]
        return count

    def _next_piece(self) -> memoryview:
        question = ShardFileQuestion(shard=self._shard, name=self._name, start=self._start)
        piece = self._desk.ask(READ_SHARD_FILE, question)
        self._start += len(piece)
        return memoryview(piece)


@dataclass(frozen=True)
class ServiceStore:
    """The part of an ObjectStore that reads a shard, over HTTP and from beginning to end."""

    desk: Desk

    def open(self, name: str) -> pa.NativeFile:
        """Raises ShardUnknown, ShardFileUnknown."""
        folder, digits, file = relative_name(name).split("/", 2)
        assert folder == FOLDER
        pieces = _FilePieces(self.desk, digits, file)
        return pa.PythonFile(io.BufferedReader(pieces, PIECE_BYTES_MAX), mode="r")


def copied_shard(desk: Desk, shard: str, copies: FileStore) -> Manifest:
    """The manifest of a shard whose files are in `copies` when this returns. Raises ShardUnknown,
    ShardDamaged."""
    pieces = _FilePieces(desk, shard, MANIFEST_NAME)
    content = io.BufferedReader(pieces, PIECE_BYTES_MAX).read()
    shard_id = DIGEST_PREFIX + hashlib.sha256(content).hexdigest()
    with copies.create(manifest_name(shard_id)) as file:
        file.write(content)
    manifest = read_manifest(copies, shard_id)
    source = ServiceStore(desk)
    for part in files_of(manifest):
        name = f"{folder_of(shard_id)}/{part.name}"
        copy_part(source, name, copies, name, part)
    return manifest


@contextmanager
def shard_at_hand(desk: Desk, shard: str, folder: Path) -> Iterator[tuple[ObjectStore, Manifest]]:
    """A store with the files of a shard (its id, the beginning of it, or its name) while the block
    runs: that of the lake, or copies in a folder of their own below `folder`. Raises ShardUnknown,
    ShardMissing, ShardDamaged."""
    if isinstance(desk, LocalDesk):
        lake, tenant = desk.lake, desk.caller.tenant
        yield lake.store, read_manifest(lake.store, find_shard(lake.database, tenant, shard).id)
        return
    make_directory(folder, SHARED_MODE)
    with TemporaryDirectory(prefix=".penstock-", dir=folder) as directory:
        copies = FileStore(Path(directory))
        yield copies, copied_shard(desk, shard, copies)
