"""The files of a shard: their names, reading them with their checksums, and moving them."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.digesting import Digesting
from penstock.settings import MIB
from penstock.shards.errors import ShardDamaged
from penstock.shards.manifest import Manifest, PartFile, RoutesFile, folder_of, write_manifest
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock.storage import ObjectStore

_COPY_BYTES = 8 * MIB


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def routes_name(part: str) -> str:
    return part.removesuffix(".parquet") + ".routes.parquet"


@contextmanager
def telling_damage(path: str) -> Iterator[None]:
    """What reading this file finds wrong in it is raised as ShardDamaged. Arrow has OSError for a
    page that does not match its checksum too; where the system refused there is a number."""
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
def open_part(
    store: ObjectStore,
    path: str,
    part: PartFile | RoutesFile,
    index: pq.FileMetaData | None = None,
) -> Iterator[pq.ParquetFile]:
    """A file of a shard, to be read with the checksums of its pages. Raises ShardDamaged, also
    for what reading finds until the block ends; what the store raises. `index` is that of the file,
    if it was read before."""
    with telling_damage(path), store.open(path) as source:
        if source.size() != part.bytes:
            why = f"it has {source.size()} bytes, and the manifest says {part.bytes}"
            raise ShardDamaged(path=path, why=why)
        with pq.ParquetFile(source, metadata=index, page_checksum_verification=True) as file:
            if index is None:
                _check_columns(path, file, part)
            yield file


def _check_columns(path: str, file: pq.ParquetFile, part: PartFile | RoutesFile) -> None:
    """The foot of a file has no checksum of its own: a flipped bit may rename a column."""
    schema = SHARD_ROWS if isinstance(part, PartFile) else ROUTE_ROWS
    if not file.schema_arrow.equals(schema):
        raise ShardDamaged(path=path, why="its columns are not those of a shard")


def read_part(
    store: ObjectStore, path: str, part: PartFile | RoutesFile, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a file in order, a row group at a time. Raises ShardDamaged."""
    with open_part(store, path, part) as file:
        counts = [file.metadata.row_group(one).num_rows for one in range(file.num_row_groups)]
        if counts != part.row_groups:
            why = f"its row groups have {counts} rows, and the manifest says {part.row_groups}"
            raise ShardDamaged(path=path, why=why)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=columns)


def check_digest(store: ObjectStore, path: str, part: PartFile | RoutesFile) -> None:
    """Read the whole file. Raises ShardDamaged when its checksum is not the manifest's."""
    with telling_damage(path), store.open(path) as source:
        digest = hashlib.sha256()
        while piece := source.read_buffer(_COPY_BYTES):
            digest.update(piece)
    _compare(path, digest.hexdigest(), part)


def copy_part(
    source: ObjectStore, path: str, target: ObjectStore, to: str, part: PartFile | RoutesFile
) -> None:
    """Nothing appears at `to` unless it has the checksum of the manifest. Raises ShardDamaged."""
    with telling_damage(path), source.open(path) as file, target.create(to) as copy:
        sink = Digesting(copy)
        while piece := file.read_buffer(_COPY_BYTES):
            sink.write(piece)
        _compare(path, sink.digest.hexdigest(), part)


def _compare(path: str, found: str, part: PartFile | RoutesFile) -> None:
    if found != part.sha256:
        why = f"its checksum is {found}, and the manifest says {part.sha256}"
        raise ShardDamaged(path=path, why=why)


def files_of(manifest: Manifest) -> Iterator[PartFile | RoutesFile]:
    for part in manifest.files:
        yield part
        if part.routes:
            yield part.routes


def read_rows(
    store: ObjectStore, manifest: Manifest, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a shard in order, a row group at a time. Raises ShardDamaged."""
    for part in manifest.files:
        yield from read_part(store, f"{folder_of(manifest.id)}/{part.name}", part, columns)


def publish(staging: ObjectStore, folder: str, target: ObjectStore, manifest: Manifest) -> None:
    """Copy the files of a finished shard to where its id says, and its manifest last."""
    to = folder_of(manifest.id)
    for part in files_of(manifest):
        path = f"{folder}/{part.name}" if folder else part.name
        copy_part(staging, path, target, f"{to}/{part.name}", part)
    write_manifest(target, manifest)
