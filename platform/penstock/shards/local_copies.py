"""The files of a shard, read again and again: local copies, copies of columns, and open files.

Local copies lie in a directory, within a bound, shared by processes. Putting lists together from
Parquet takes several times as long as reading what they become, so a copy of columns holds those of
each row group as IPC messages. An index at its end says where each lies, and its checksum, which is
looked at whenever it is read. Nothing is compressed: unpacking takes several times as long as
reading. A copy is made from the Parquet file, whose pages are checked meanwhile, and is named by
its digest. A damaged copy is never an error: it is deleted, and Parquet is read.
"""

import fcntl
import os
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from penstock.directories import make_directory, open_private
from penstock.safe_names import sha256_digits
from penstock.shards.batches import TRAINING_COLUMNS
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import (
    ReadableStore,
    check_digest,
    copy_part,
    open_part,
    reporting_damage,
)
from penstock.shards.manifest import PartFile, ShardFile, StoredShard
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock.storage import FileStore, ObjectStore

#: Of Parquet, and of its columns in a form that is read faster.
_PARQUET, _COLUMNS = ".parquet", ".arrow"
#: Below a data directory.
CACHE_FOLDER = "cache/shards"
#: Files that are kept open, and whose indexes are remembered.
_OPEN_FILES_MAX = 16
_ALIGNMENT = 64
_FOOT = 16
T = TypeVar("T")


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
        for suffix in (_PARQUET, _COLUMNS):
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


# Copies of columns


class _Piece(msgspec.Struct, array_like=True, gc=False):
    """Columns of a row group: where their message lies, and the checksum of it."""

    start: int
    length: int
    digest: int


class _CopyIndex(msgspec.Struct):
    #: What columns each piece of a row group has: a serialized schema.
    schemas: list[bytes]
    #: By row group, for each schema.
    pieces: list[list[_Piece]]


class ColumnCopies:
    """Those below a directory. Where `making`, one is made of each part that is read, else only
    those are used that are there."""

    def __init__(self, copies: LocalCopies, *, making: bool) -> None:
        self._copies = copies
        self._making = making

    def find(self, part: ShardFile, tables: Iterable[pa.Table]) -> "ColumnCopy | None":
        """The copy of this part, made of its row groups where there is none. Raises what `tables`
        raises."""
        path = self._path(part)
        with suppress(FileNotFoundError, ShardDamaged):
            return ColumnCopy.opened(path)
        if not self._making:
            return None
        make_directory(self._copies.directory)
        with self._copies.locked(part, ".columns"):
            with suppress(FileNotFoundError, ShardDamaged):
                return ColumnCopy.opened(path)  # another process was quicker
            with suppress(OSError):  # such as a full disk: Parquet is read
                self._write(path, tables)
                return ColumnCopy.opened(path)
        return None

    def drop(self, part: ShardFile) -> None:
        self._path(part).unlink(missing_ok=True)

    def _path(self, part: ShardFile) -> Path:
        return self._copies.directory / (sha256_digits(part.sha256) + _COLUMNS)

    def _write(self, path: Path, tables: Iterable[pa.Table]) -> None:
        """Nothing appears at the path unless all of it is there."""
        draft = path.with_suffix(f"{_COLUMNS}.tmp-{os.getpid()}")
        index = _CopyIndex([], [])
        try:
            with draft.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                for table in tables:
                    schemas = _schemas(table.schema)
                    index.schemas = [schema.serialize().to_pybytes() for schema in schemas]
                    pieces = []
                    for schema in schemas:
                        [batch] = table.select(schema.names).combine_chunks().to_batches()
                        message = batch.serialize()
                        start = file.tell()
                        start += file.write(b"\0" * (-start % _ALIGNMENT))
                        file.write(message)
                        digest = xxhash.xxh3_64_intdigest(message)
                        pieces.append(_Piece(start, message.size, digest))
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
    """An open copy. It stays readable when the file is deleted. It is read, not mapped: pages of a
    mapped file would count as memory of the reader."""

    def __init__(self, path: Path, descriptor: int, index: _CopyIndex) -> None:
        self._path = path
        self._descriptor = descriptor
        self._pieces = index.pieces
        self._schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in index.schemas]
        self._places = {
            name: at for at, schema in enumerate(self._schemas) for name in schema.names
        }
        # Not before the last thread is done with it: the number is given to another file.
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def opened(cls, path: Path) -> Self:
        """Raises FileNotFoundError, ShardDamaged."""
        with path.open("rb") as file:
            os.utime(file.fileno())  # it was used
            size = os.fstat(file.fileno()).st_size
            foot = os.pread(file.fileno(), _FOOT, max(0, size - _FOOT))
            length = int.from_bytes(foot[:8], "little")
            if len(foot) < _FOOT or length > size - _FOOT:
                raise ShardDamaged(path=str(path), why="it ends in the middle")
            index = os.pread(file.fileno(), length, size - _FOOT - length)
            if xxhash.xxh3_64_intdigest(index) != int.from_bytes(foot[8:], "little"):
                raise ShardDamaged(path=str(path), why="the checksum of its index is another")
            content = msgspec.msgpack.decode(index, type=_CopyIndex)
            return cls(path, os.dup(file.fileno()), content)

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
        # In memory of Arrow's pool, which keeps what was given back, as batches are.
        message = pa.allocate_buffer(piece.length)
        try:
            os.preadv(self._descriptor, [memoryview(message)], piece.start)
        except OSError as error:
            raise ShardDamaged(path=str(self._path), why=str(error)) from error
        if xxhash.xxh3_64_intdigest(message) != piece.digest:
            what = ", ".join(schema.names)
            raise ShardDamaged(path=str(self._path), why=f"the checksum of {what} is another")
        return pa.ipc.read_record_batch(message, schema)


def _schemas(columns: pa.Schema) -> list[pa.Schema]:
    """What is read together: the short columns of training, since a message takes as long as
    they do; and each other column by itself."""
    short = [name for name in TRAINING_COLUMNS if name in columns.names]
    short = [name for name in short if not pa.types.is_nested(columns.field(name).type)]
    others = [[name] for name in columns.names if name not in short]
    pieces = [short, *others] if short else others
    return [pa.schema([columns.field(name) for name in names]) for names in pieces]


# Open files


class _OpenFile(NamedTuple):
    file: pq.ParquetFile
    closing: ExitStack


class OpenFiles:
    """Reads row groups, from any number of threads. Openings and indexes are kept: reading an index
    takes as long as decoding a row group."""

    def __init__(
        self,
        shard: StoredShard,
        copies: LocalCopies | None,
        columns: ColumnCopies | None = None,
    ) -> None:
        self._shard = shard
        self._copies = copies
        self._column_copies = columns
        self._open_columns: OrderedDict[str, ColumnCopy | None] = OrderedDict()
        self._lock = Lock()
        self._idle: OrderedDict[str, _OpenFile] = OrderedDict()
        self._indexes: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._first_opening: defaultdict[str, Lock] = defaultdict(Lock)

    def path(self, part: ShardFile) -> str:
        return self._shard.path(part)

    def read(self, part: ShardFile, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Raises ShardDamaged, and what the store raises. A damaged copy is fetched again."""
        if self._column_copies is not None:
            copy = self._opened_columns(part, self._column_copies)
            try:
                if copy is not None:
                    return copy.read(row_groups, columns)
            except ShardDamaged:
                self._column_copies.drop(part)
                with self._lock:
                    self._open_columns.pop(part.name, None)
        return self._read_parquet(part, row_groups, columns)

    def _opened_columns(self, part: ShardFile, copies: ColumnCopies) -> ColumnCopy | None:
        with self._lock:
            if part.name in self._open_columns:
                return self._open_columns[part.name]
        groups = range(len(part.row_groups))
        names = SHARD_ROWS.names if isinstance(part, PartFile) else ROUTE_ROWS.names
        copy = copies.find(part, (self._read_parquet(part, [at], names) for at in groups))
        with self._lock:
            _remember(self._open_columns, part.name, copy)
        return copy

    def _read_parquet(
        self, part: ShardFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        try:
            with self._opening(part) as file:
                return file.read_row_groups(row_groups, columns=columns).select(columns)
        except ShardDamaged:
            if self._copies is None:
                raise
        with self._lock:
            opened = self._idle.pop(part.name, None)
            self._indexes.pop(part.name, None)
        if opened:
            opened.closing.close()
        self._copies.drop(part)
        with self._opening(part) as file:
            return file.read_row_groups(row_groups, columns=columns).select(columns)

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
            self._open_columns.clear()
        for opened in idle:
            opened.closing.close()

    @contextmanager
    def _opening(self, part: ShardFile) -> Iterator[pq.ParquetFile]:
        with self._lock:
            opened = self._idle.pop(part.name, None)
            first = self._first_opening[part.name]
        if opened is None:
            with first:  # so that its index is read once
                opened = self._open(part)
        with ExitStack() as closing:
            closing.push(opened.closing)
            with reporting_damage(self.path(part)):
                yield opened.file
            closing.pop_all()
        with self._lock:
            unneeded = [self._idle.pop(part.name)] if part.name in self._idle else []
            unneeded += _remember(self._idle, part.name, opened)
        for other in unneeded:
            other.closing.close()

    def _open(self, part: ShardFile) -> _OpenFile:
        store, path = self._shard.store, self.path(part)
        if self._copies:
            store, path = self._copies.find(store, path, part)
        with self._lock:
            index = self._indexes.get(part.name)
        with ExitStack() as closing:
            file = closing.enter_context(open_part(store, path, part, index))
            with self._lock:
                _remember(self._indexes, part.name, file.metadata)
            return _OpenFile(file, closing.pop_all())


def _remember(recent: OrderedDict[str, T], name: str, value: T) -> list[T]:
    """Put it at the end; what there is no more room for."""
    recent[name] = value
    recent.move_to_end(name)
    return [recent.popitem(last=False)[1]] if len(recent) > _OPEN_FILES_MAX else []
