"""The files of a shard: names, checksums, copying and reading."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.settings import MIB
from penstock.lake.segments import DigestingFile
from penstock.shards.errors import ShardDamaged
from penstock.shards.manifest import Manifest, PartFile, ShardFile, StoredShard
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS

_COPY_BYTES = 8 * MIB


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def routes_name(part: str) -> str:
    return part.removesuffix(".parquet") + ".routes.parquet"


@contextmanager
def reporting_damage(path: str) -> Iterator[None]:
    """Raise as ShardDamaged whatever is wrong with this file.

    Arrow raises OSError also for a wrong checksum; where the system refused, it has a number."""
    try:
        yield
    except FileNotFoundError as error:
        raise ShardDamaged(path=path, why="it is missing") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ShardDamaged(path=path, why=str(error).strip()) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise ShardDamaged(path=path, why=str(error).strip()) from error


@contextmanager
def open_part(store: ObjectStore, path: str, part: ShardFile) -> Iterator[pq.ParquetFile]:
    """Open a file whose pages are checked as they are read. Raises ShardDamaged, also while the
    block reads, and what the store raises."""
    with reporting_damage(path), store.open(path) as source:
        if source.size() != part.bytes:
            why = f"it has {source.size()} bytes, and the manifest says {part.bytes}"
            raise ShardDamaged(path=path, why=why)
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            # A footer has no checksum of its own: a flipped bit may rename a column.
            schema = SHARD_ROWS if isinstance(part, PartFile) else ROUTE_ROWS
            if not file.schema_arrow.equals(schema):
                raise ShardDamaged(path=path, why="its columns are not those of a shard")
            yield file


def read_part(
    store: ObjectStore, path: str, part: ShardFile, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Read the rows of a file in order, a row group at a time. Raises ShardDamaged."""
    with open_part(store, path, part) as file:
        counts = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        if counts != part.row_groups:
            why = f"its row groups have {counts} rows, and the manifest says {part.row_groups}"
            raise ShardDamaged(path=path, why=why)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=columns)
            yield rows if columns is None else rows.select(columns)


def check_digest(store: ObjectStore, path: str, part: ShardFile) -> None:
    """Read the whole file. Raises ShardDamaged when its checksum is not the manifest's."""
    with reporting_damage(path), store.open(path) as source:
        digest = hashlib.sha256()
        while piece := source.read_buffer(_COPY_BYTES):
            digest.update(piece)
    _compare(path, digest.hexdigest(), part)


class ReadableStore(Protocol):
    """The part of an ObjectStore that copying needs; what it opens is read once, in order."""

    def open(self, name: str) -> pa.NativeFile: ...


def copy_part(
    source: ReadableStore, path: str, target: ObjectStore, to: str, part: ShardFile
) -> None:
    """Copy a file: nothing appears at `to` with another checksum. Raises ShardDamaged."""
    with reporting_damage(path), source.open(path) as file, target.create(to) as copy:
        sink = DigestingFile(copy)
        while piece := file.read_buffer(_COPY_BYTES):
            sink.write(piece)
        _compare(path, sink.digest.hexdigest(), part)


def _compare(path: str, sha256: str, part: ShardFile) -> None:
    if sha256 != part.sha256:
        why = f"its checksum is {sha256}, and the manifest says {part.sha256}"
        raise ShardDamaged(path=path, why=why)


def files_of(manifest: Manifest) -> Iterator[ShardFile]:
    for part in manifest.files:
        yield part
        if part.routes:
            yield part.routes


def read_rows(shard: StoredShard, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Read the rows of a shard in order, a row group at a time. Raises ShardDamaged."""
    for part in shard.manifest.files:
        yield from read_part(shard.store, shard.path(part), part, columns)


class RouteRows:
    """The rows of a side file, whose row groups are not those of its part."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._waiting: list[pa.Table] = []

    def take(self, count: int) -> pa.Table:
        """Give the next rows; fewer where there are no more."""
        while sum(rows.num_rows for rows in self._waiting) < count:
            if (rows := next(self._tables, None)) is None:
                break
            self._waiting.append(rows)
        if not self._waiting:
            return ROUTE_ROWS.empty_table()
        waiting = pa.concat_tables(self._waiting)
        self._waiting = [waiting[count:]]
        return waiting[:count]
