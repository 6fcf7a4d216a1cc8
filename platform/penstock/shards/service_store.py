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
    StoredShard,
    decoded_manifest,
    stored_shard,
)
from penstock.shards.registered_shards import find_shard
from penstock.shards.withdrawn_sessions import check_withdrawn
from penstock.storage import FileStore

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
    its end. The folder of a shard is its id. Each file has a desk of its own, which threads cannot
    share."""

    desk: Callable[[], AbstractContextManager[Desk]]
    local = False

    def open(self, name: str) -> pa.NativeFile:
        """Raises ShardUnknown, ShardFileUnknown."""
        shard, file = relative_name(name).split("/", 1)
        return pa.PythonFile(self._file(shard, file), mode="r")

    def stored(self, shard: str) -> StoredShard:
        """By its id, the beginning of it, or its name. Raises ShardUnknown, ShardDamaged."""
        with self._file(shard, MANIFEST_NAME) as file:
            manifest = decoded_manifest(file.read(), MANIFEST_NAME)
        return StoredShard(self, manifest.id, manifest)

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
def shard_at_hand(desk: Desk, shard: str, folder: Path) -> Iterator[StoredShard]:
    """A shard (by its id, the beginning of it, or its name) while the block runs: that of the lake,
    or copies in a folder of their own below `folder`. Raises ShardUnknown, ShardMissing,
    ShardDamaged."""
    if isinstance(desk, LocalDesk):
        lake, tenant = desk.lake, desk.caller.tenant
        known = find_shard(lake.database, tenant, shard)
        check_withdrawn(lake.database, lake.settings, tenant, known.id)
        stored = stored_shard(lake.store, known.folder, known.id)
        lake.tally.count(tenant, desk.caller.actor, "export", known.id)
        yield stored
        return
    source = ServiceStore(lambda: nullcontext(desk))
    remote = source.stored(shard)
    make_directory(folder, SHARED_MODE)
    with TemporaryDirectory(prefix=".penstock-", dir=folder) as directory:
        copies = StoredShard(FileStore(Path(directory)), FOLDER, remote.manifest)
        for part in files_of(remote.manifest):
            copy_part(source, remote.path(part), copies.store, copies.path(part), part)
        yield copies
