"""The files of shards as a service gives them, for readers that are far from the lake."""

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.directories import SHARED_MODE, make_directory
from penstock.lake.desk import Desk, LocalDesk, open_desk
from penstock.safe_names import relative_name
from penstock.shards.calls import PIECE_BYTES_MAX, READ_SHARD_FILE, ShardFileQuestion
from penstock.shards.files import copy_part, files_of
from penstock.shards.manifest import (
    FOLDER,
    MANIFEST_NAME,
    Manifest,
    decoded_manifest,
    folder_of,
    read_manifest,
)
from penstock.shards.registered_shards import find_shard
from penstock.shards.withdrawn_sessions import check_withdrawn
from penstock.storage import FileStore, ObjectStore

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer


class _FilePieces(io.RawIOBase):
    """A file of a shard, from its beginning to its end."""

    def __init__(self, desk: Desk, shard: str, name: str) -> None:
        self._desk = desk
        self._shard, self._name = shard, name
        #: What is closed with it.
        self.at_end = ExitStack()
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

    def close(self) -> None:
        self.at_end.close()
        super().close()

    def _next_piece(self) -> memoryview:
        question = ShardFileQuestion(shard=self._shard, name=self._name, start=self._start)
        piece = self._desk.ask(READ_SHARD_FILE, question)
        self._start += len(piece)
        return memoryview(piece)


@dataclass(frozen=True)
class ServiceStore:
    """The part of an ObjectStore that reads shards, over HTTP and each file from its beginning to
    its end. Each file has a desk of its own, which threads cannot share."""

    desk: Callable[[], AbstractContextManager[Desk]]
    local = False

    def open(self, name: str) -> pa.NativeFile:
        """Raises ShardUnknown, ShardFileUnknown."""
        folder, digits, file = relative_name(name).split("/", 2)
        assert folder == FOLDER
        return pa.PythonFile(self._file(digits, file), mode="r")

    def manifest(self, shard: str) -> Manifest:
        """Of a shard by its id, the beginning of it, or its name. Raises ShardUnknown,
        ShardDamaged."""
        with self._file(shard, MANIFEST_NAME) as file:
            return decoded_manifest(file.read(), MANIFEST_NAME)

    def address(self, name: str) -> str:
        return name

    def _file(self, shard: str, name: str) -> io.BufferedReader:
        with ExitStack() as closing:
            desk = closing.enter_context(self.desk())
            pieces = _FilePieces(desk, shard, name)
            pieces.at_end = closing.pop_all()
        return io.BufferedReader(pieces, PIECE_BYTES_MAX)


@contextmanager
def service_desk(url: str, key: str | None) -> Iterator[Desk]:
    """With this key, else with the one that is kept. Raises InvalidInput."""
    with open_desk(None, url, key=key) as desk:
        yield desk


@contextmanager
def shard_at_hand(desk: Desk, shard: str, folder: Path) -> Iterator[tuple[ObjectStore, Manifest]]:
    """A store with the files of a shard (its id, the beginning of it, or its name) while the block
    runs: that of the lake, or copies in a folder of their own below `folder`. Raises ShardUnknown,
    ShardMissing, ShardDamaged."""
    if isinstance(desk, LocalDesk):
        lake, tenant = desk.lake, desk.caller.tenant
        manifest = read_manifest(lake.store, find_shard(lake.database, tenant, shard).id)
        check_withdrawn(lake.database, lake.settings, manifest.id)
        lake.tally.count(tenant, desk.caller.actor, "export", manifest.id)
        yield lake.store, manifest
        return
    source = ServiceStore(lambda: nullcontext(desk))
    manifest = source.manifest(shard)
    make_directory(folder, SHARED_MODE)
    with TemporaryDirectory(prefix=".penstock-", dir=folder) as directory:
        copies = FileStore(Path(directory))
        for part in files_of(manifest):
            name = f"{folder_of(manifest.id)}/{part.name}"
            copy_part(source, name, copies, name, part)
        yield copies, manifest
