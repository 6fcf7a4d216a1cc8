"""Column copies: the columns of a part as Arrow's own buffers, beside the Parquet that stays the
record.

Putting lists together from Parquet takes several times as long as reading what they become. So a
copy holds the columns of each row group as IPC messages, and an index at its end says where each
lies, and its checksum, which is looked at whenever it is read. Nothing is compressed: unpacking
takes several times as long as reading. A copy is made from the Parquet file, whose pages are
checked meanwhile, and is named by the digest of that. What is wrong with a copy is never an error:
it is deleted, and Parquet is read.
"""

import os
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa
import xxhash

from penstock.directories import make_directory
from penstock.safe_names import sha256_digits
from penstock.shards.batches import TRAINING_COLUMNS
from penstock.shards.errors import ShardDamaged
from penstock.shards.local_copies import COLUMNS_SUFFIX, LocalCopies
from penstock.shards.manifest import ShardFile

_ALIGNMENT = 64
_FOOT = 16


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
        return self._copies.directory / (sha256_digits(part.sha256) + COLUMNS_SUFFIX)

    def _write(self, path: Path, tables: Iterable[pa.Table]) -> None:
        """Nothing appears at the path unless all of it is there."""
        draft = path.with_suffix(f"{COLUMNS_SUFFIX}.tmp-{os.getpid()}")
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
