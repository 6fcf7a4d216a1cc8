"""Local copies of a shard's files, copies of columns, and files that are kept open.

Copies are in a directory of bounded size, shared by processes. Assembling lists from Parquet takes
several times as long as reading the result. So a copy of columns holds each row group as
uncompressed IPC messages, with an index at its end that holds positions and checksums. It is named
by the digest of its Parquet file. A damaged copy is never an error: it is deleted, and Parquet is
read.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from penstock.backends.storage.object_store import FileStore, ObjectStore
from penstock.core.files import make_directory, open_private, sha256_digits
from penstock.shards.batches import TRAINING_COLUMNS
from penstock.shards.manifest import (
    PartFile,
    ReadableStore,
    ShardFile,
    StoredShard,
    check_digest,
    copy_part,
    open_part,
    reporting_damage,
)
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock.shards.shard import ShardDamaged

_PARQUET, _COLUMNS = ".parquet", ".arrow"
CACHE_FOLDER = "cache/shards"
_OPEN_FILES_MAX = 16
_ALIGNMENT = 64
#: The length of the index, and its checksum.
_FOOTER_BYTES = 16


class LocalCopies:
    """Copies in a directory. Above `bytes_max` the least recently used are deleted."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self.directory = directory
        self._bytes_max = bytes_max
        self._copies = FileStore(directory)

    def find(self, store: ReadableStore, path: str, part: ShardFile) -> tuple[ObjectStore, str]:
        """Find a copy, or make it. Raises ShardDamaged, and errors of the store."""
        copy = self.path(part, _PARQUET)
        if not _is_whole(copy, part):
            make_directory(self.directory)
            with self.locked(part):
                if not _is_whole(copy, part):  # another process may have been faster
                    self.make_room(part.bytes)
                    copy_part(store, path, self._copies, copy.name, part)
        return self._copies, copy.name

    def drop(self, part: ShardFile) -> None:
        """Delete a damaged copy, unless it was fetched again meanwhile."""
        name = self.path(part, _PARQUET).name
        with self.locked(part):
            try:
                check_digest(self._copies, name, part)
            except ShardDamaged:
                self._copies.delete(name)

    def forget(self) -> int:
        """Delete all copies, unfinished ones included; returns their number."""
        copies = list(self._all("*"))
        for path in copies:
            path.unlink(missing_ok=True)
        return len(copies)

    def make_room(self, needed: int) -> None:
        copies = []
        for path in self._all():
            with suppress(FileNotFoundError):  # another process also deletes
                status = path.stat()
                copies.append((status.st_mtime_ns, status.st_size, path))
        room = self._bytes_max - needed - sum(size for _, size, _ in copies)
        for _, size, path in sorted(copies):
            if room >= 0:
                return
            path.unlink(missing_ok=True)
            room += size

    def path(self, part: ShardFile, suffix: str) -> Path:
        return self.directory / (sha256_digits(part.sha256) + suffix)

    @contextmanager
    def locked(self, part: ShardFile, what: str = "") -> Iterator[None]:
        """Lock the making of `what` from the part: copies of columns are made from Parquet ones."""
        with open_private(self.path(part, f"{what}.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _all(self, more: str = "") -> Iterator[Path]:
        for suffix in (_PARQUET, _COLUMNS):
            yield from self.directory.glob(f"*{suffix}{more}")


def _is_whole(path: Path, part: ShardFile) -> bool:
    with suppress(FileNotFoundError):
        if path.stat().st_size == part.bytes:
            os.utime(path)  # recently used
            return True
    return False


# Copies of columns


class _Piece(msgspec.Struct, array_like=True, gc=False):
    """Columns of a row group: the place of their message, and its checksum."""

    start: int
    length: int
    digest: int


class _CopyIndex(msgspec.Struct):
    #: Serialized schemas: the columns of each piece of a row group.
    schemas: list[bytes]
    pieces: list[list[_Piece]]


class ColumnCopies:
    """Copies of columns below a directory. `making` creates one for each part that is read."""

    def __init__(self, copies: LocalCopies, *, making: bool) -> None:
        self._copies = copies
        self._making = making

    def find(self, part: ShardFile, tables: Iterable[pa.Table]) -> "ColumnCopy | None":
        """Open the copy of a part, or make it from row groups. Raises errors of these."""
        path = self._copies.path(part, _COLUMNS)
        with suppress(FileNotFoundError, ShardDamaged):
            return ColumnCopy(path)
        if not self._making:
            return None
        make_directory(self._copies.directory)
        with self._copies.locked(part, ".columns"):
            with suppress(FileNotFoundError, ShardDamaged):
                return ColumnCopy(path)  # another process was faster
            with suppress(OSError):  # for example a full disk: Parquet is read
                self._write(path, tables)
                return ColumnCopy(path)
        return None

    def drop(self, part: ShardFile) -> None:
        self._copies.path(part, _COLUMNS).unlink(missing_ok=True)

    def _write(self, path: Path, tables: Iterable[pa.Table]) -> None:
        """Write a copy; it appears at the path only when complete."""
        draft = path.with_suffix(f"{_COLUMNS}.tmp-{os.getpid()}")
        index = _CopyIndex([], [])
        try:
            with open_private(draft, "wb") as file:
                for table in tables:
                    schemas = _schemas(table.schema)
                    index.schemas = [schema.serialize().to_pybytes() for schema in schemas]
                    pieces = []
                    for schema in schemas:
                        [batch] = table.select(schema.names).combine_chunks().to_batches()
                        message = batch.serialize()
                        file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                        digest = xxhash.xxh3_64_intdigest(message)
                        pieces.append(_Piece(file.tell(), message.size, digest))
                        file.write(message)
                    index.pieces.append(pieces)
                content = msgspec.msgpack.encode(index)
                file.write(content)
                digest = xxhash.xxh3_64_intdigest(content)
                file.write(len(content).to_bytes(8, "little") + digest.to_bytes(8, "little"))
                size = file.tell()
            self._copies.make_room(size)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


class ColumnCopy:
    """A copy whose index is in memory. It is read, not mapped: mapped pages count as memory of the
    reader."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError, ShardDamaged."""
        self._path = path
        os.utime(path)  # recently used
        end = path.stat().st_size - _FOOTER_BYTES
        footer = self._read(max(end, 0), _FOOTER_BYTES).to_pybytes()
        length, digest = (int.from_bytes(part, "little") for part in (footer[:8], footer[8:]))
        if not 0 < length <= end:
            raise ShardDamaged(path=str(path), why="it ends in the middle")
        content = self._checked(end - length, length, digest, "its index")
        index = msgspec.msgpack.decode(content, type=_CopyIndex)
        self._pieces = index.pieces
        self._schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in index.schemas]
        self._places = {
            name: at for at, schema in enumerate(self._schemas) for name in schema.names
        }

    def read(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Raises ShardDamaged."""
        places = dict.fromkeys(self._places[name] for name in columns)
        tables = []
        for number in row_groups:
            batches = {at: self._batch(number, at) for at in places}
            arrays = [batches[self._places[name]].column(name) for name in columns]
            tables.append(pa.Table.from_arrays(arrays, names=list(columns)))
        return pa.concat_tables(tables)

    def _batch(self, row_group: int, place: int) -> pa.RecordBatch:
        piece, schema = self._pieces[row_group][place], self._schemas[place]
        try:
            message = self._checked(
                piece.start, piece.length, piece.digest, ", ".join(schema.names)
            )
        except OSError as error:
            raise ShardDamaged(path=str(self._path), why=str(error)) from error
        return pa.ipc.read_record_batch(message, schema)

    def _checked(self, start: int, length: int, digest: int, what: str) -> pa.Buffer:
        content = self._read(start, length)
        if xxhash.xxh3_64_intdigest(content) != digest:
            raise ShardDamaged(path=str(self._path), why=f"the checksum of {what} is wrong")
        return content

    def _read(self, start: int, length: int) -> pa.Buffer:
        # Memory of Arrow's pool is reused, as for batches.
        content = pa.allocate_buffer(length)
        with self._path.open("rb", buffering=0) as file:
            os.preadv(file.fileno(), [memoryview(content)], start)
        return content


def _schemas(columns: pa.Schema) -> list[pa.Schema]:
    """Choose the columns to read together: the short ones of training, since each message has a
    cost. All others are read alone."""
    short = [name for name in TRAINING_COLUMNS if name in columns.names]
    short = [name for name in short if not pa.types.is_nested(columns.field(name).type)]
    others = [[name] for name in columns.names if name not in short]
    pieces = [short, *others] if short else others
    return [pa.schema([columns.field(name) for name in names]) for names in pieces]


# Open files


class _OpenFile(NamedTuple):
    part: str
    file: pq.ParquetFile
    closing: ExitStack


class OpenFiles:
    """Reads row groups from any number of threads. Files stay open: reading a footer takes as long
    as decoding a row group."""

    def __init__(
        self, shard: StoredShard, copies: LocalCopies | None, columns: ColumnCopies | None = None
    ) -> None:
        self._shard = shard
        self._copies = copies
        self._column_copies = columns
        self._lock = Lock()
        #: The last used are last. A thread takes a file out while it reads.
        self._idle: list[_OpenFile] = []
        self._open_columns: dict[str, ColumnCopy | None] = {}

    def path(self, part: ShardFile) -> str:
        return self._shard.path(part)

    def read(self, part: ShardFile, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read a row group; a damaged copy is fetched again. Raises ShardDamaged, and errors of the
        store."""
        if self._column_copies is not None:
            copy = self._opened_columns(part, self._column_copies)
            try:
                if copy is not None:
                    return copy.read(row_groups, columns)
            except ShardDamaged:
                self._column_copies.drop(part)
                self._open_columns.pop(part.name, None)
        try:
            return self._read_parquet(part, row_groups, columns)
        except ShardDamaged:
            if self._copies is None:
                raise
        self._close([opened for opened in self._idle if opened.part == part.name])
        self._copies.drop(part)
        return self._read_parquet(part, row_groups, columns)

    def _opened_columns(self, part: ShardFile, copies: ColumnCopies) -> ColumnCopy | None:
        known = self._open_columns
        if part.name not in known:
            groups = range(len(part.row_groups))
            names = SHARD_ROWS.names if isinstance(part, PartFile) else ROUTE_ROWS.names
            copy = copies.find(part, (self._read_parquet(part, [at], names) for at in groups))
            with self._lock:
                if len(known) >= _OPEN_FILES_MAX:
                    del known[next(iter(known))]
                known[part.name] = copy
            return copy
        return known.get(part.name)

    def _read_parquet(
        self, part: ShardFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        with self._lock:
            idle = [opened for opened in self._idle if opened.part == part.name]
            if idle:
                self._idle.remove(idle[0])
        opened = idle[0] if idle else self._open(part)
        with ExitStack() as closing:
            closing.push(opened.closing)
            with reporting_damage(self.path(part)):
                rows = opened.file.read_row_groups(row_groups, columns=columns).select(columns)
            closing.pop_all()
        with self._lock:
            self._idle.append(opened)
        self._close(self._idle[:-_OPEN_FILES_MAX])
        return rows

    def close(self) -> None:
        """Close all files; they are reopened when needed."""
        self._close([*self._idle])
        self._open_columns.clear()

    def _close(self, files: Sequence[_OpenFile]) -> None:
        for opened in files:
            with self._lock:
                mine = opened in self._idle
                if mine:
                    self._idle.remove(opened)
            if mine:
                opened.closing.close()

    def _open(self, part: ShardFile) -> _OpenFile:
        store, path = self._shard.store, self.path(part)
        if self._copies:
            store, path = self._copies.find(store, path, part)
        with ExitStack() as closing:
            file = closing.enter_context(open_part(store, path, part))
            return _OpenFile(part.name, file, closing.pop_all())
