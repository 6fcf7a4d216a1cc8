"""The files of a shard: names, checksums, copying, reading them again and again, local copies."""

import fcntl
import hashlib
import os
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.directories import make_directory, open_private
from penstock.lake.segments import DigestingFile
from penstock.safe_names import sha256_digits
from penstock.settings import MIB
from penstock.shards.errors import ShardDamaged
from penstock.shards.manifest import Manifest, PartFile, ShardFile, folder_of
from penstock.shards.schema import FIRST_SHARD_ROWS, ROUTE_ROWS, SHARD_ROWS, completed
from penstock.storage import FileStore, ObjectStore

_COPY_BYTES = 8 * MIB
#: Files that are kept open, and whose indexes are remembered.
_OPEN_FILES_MAX = 16

T = TypeVar("T")


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def routes_name(part: str) -> str:
    return part.removesuffix(".parquet") + ".routes.parquet"


@contextmanager
def reporting_damage(path: str) -> Iterator[None]:
    """Whatever is wrong with this file is raised as ShardDamaged. Arrow raises OSError also for a
    page with a wrong checksum; where the system refused, the error has a number."""
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
    store: ObjectStore, path: str, part: ShardFile, index: pq.FileMetaData | None = None
) -> Iterator[pq.ParquetFile]:
    """A file of a shard, read with the checksums of its pages. Raises ShardDamaged, also while the
    block reads, and what the store raises. `index` is that of the file, if it was read before."""
    with reporting_damage(path), store.open(path) as source:
        if source.size() != part.bytes:
            why = f"it has {source.size()} bytes, and the manifest says {part.bytes}"
            raise ShardDamaged(path=path, why=why)
        with pq.ParquetFile(source, metadata=index, page_checksum_verification=True) as file:
            # The foot of a file has no checksum of its own: a flipped bit may rename a column.
            of_rows = isinstance(part, PartFile)
            schemas = (SHARD_ROWS, FIRST_SHARD_ROWS) if of_rows else (ROUTE_ROWS,)
            if index is None and not any(map(file.schema_arrow.equals, schemas)):
                raise ShardDamaged(path=path, why="its columns are not those of a shard")
            yield file


def read_part(
    store: ObjectStore, path: str, part: ShardFile, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a file in order, a row group at a time. Raises ShardDamaged."""
    with open_part(store, path, part) as file:
        counts = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        if counts != part.row_groups:
            why = f"its row groups have {counts} rows, and the manifest says {part.row_groups}"
            raise ShardDamaged(path=path, why=why)
        for number in range(file.num_row_groups):
            yield _completed(file.read_row_group(number, columns=columns), part, columns)


def _completed(rows: pa.Table, part: ShardFile, columns: Sequence[str] | None) -> pa.Table:
    """Whatever the format of the file was, the columns are those of this one."""
    if isinstance(part, PartFile):
        return completed(rows, SHARD_ROWS.names if columns is None else columns)
    return rows


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
    """Nothing appears at `to` unless it has the checksum of the manifest. Raises ShardDamaged."""
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


def read_rows(
    store: ObjectStore, manifest: Manifest, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a shard in order, a row group at a time. Raises ShardDamaged."""
    for part in manifest.files:
        yield from read_part(store, f"{folder_of(manifest.id)}/{part.name}", part, columns)


class RouteRows:
    """The rows of a side file, whose row groups are not those of its part."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._waiting: list[pa.Table] = []

    def take(self, count: int) -> pa.Table:
        """The next so many; fewer where there are no more."""
        while sum(rows.num_rows for rows in self._waiting) < count:
            if (rows := next(self._tables, None)) is None:
                break
            self._waiting.append(rows)
        if not self._waiting:
            return ROUTE_ROWS.empty_table()
        waiting = pa.concat_tables(self._waiting)
        self._waiting = [waiting[count:]]
        return waiting[:count]


#: Below a data directory.
CACHE_FOLDER = "cache/shards"


class LocalCopies:
    """Copies in a directory. When they exceed `bytes_max`, the least recently used are deleted; a
    copy that is being read stays readable until it is closed, as files do."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._copies = FileStore(directory)

    def find(self, store: ReadableStore, path: str, part: ShardFile) -> tuple[ObjectStore, str]:
        """Made where there is none. Raises ShardDamaged, and what the store raises."""
        name = f"{sha256_digits(part.sha256)}.parquet"
        if not self._is_there(name, part):
            make_directory(self._directory)
            with self._locked(part):
                if not self._is_there(name, part):  # another process may have been quicker
                    self._make_room(part.bytes)
                    copy_part(store, path, self._copies, name, part)
        return self._copies, name

    def drop(self, part: ShardFile) -> None:
        """Forget a copy that turned out to be damaged, unless another has fetched it again."""
        name = f"{part.sha256}.parquet"
        with self._locked(part):
            try:
                check_digest(self._copies, name, part)
            except ShardDamaged:
                self._copies.delete(name)

    def forget(self) -> int:
        """Delete all copies; how many."""
        copies = list(self._directory.glob("*.parquet*"))
        for path in copies:
            path.unlink(missing_ok=True)
        return len(copies)

    def _is_there(self, name: str, part: ShardFile) -> bool:
        path = self._directory / name
        with suppress(FileNotFoundError):
            if path.stat().st_size == part.bytes:
                os.utime(path)
                return True
        return False

    def _make_room(self, needed: int) -> None:
        copies = []
        for path in self._directory.glob("*.parquet"):
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
    def _locked(self, part: ShardFile) -> Iterator[None]:
        path = self._directory / f"{sha256_digits(part.sha256)}.lock"
        with open_private(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _OpenFile(NamedTuple):
    file: pq.ParquetFile
    closing: ExitStack


class OpenFiles:
    """Reads row groups. Any number of threads may do so at once, each from an opening of its own.

    Openings and the indexes of files are kept: reading an index takes as long as decoding a row
    group."""

    def __init__(self, store: ObjectStore, folder: str, copies: LocalCopies | None) -> None:
        self._store = store
        self._folder = folder
        self._copies = copies
        self._lock = Lock()
        self._idle: OrderedDict[str, _OpenFile] = OrderedDict()
        self._indexes: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._first_opening: defaultdict[str, Lock] = defaultdict(Lock)

    def path(self, part: ShardFile) -> str:
        return f"{self._folder}/{part.name}"

    def read(self, part: ShardFile, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Raises ShardDamaged, and what the store raises. A damaged copy is fetched again."""
        try:
            with self._opening(part) as file:
                return _completed(file.read_row_groups(row_groups, columns=columns), part, columns)
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
            return _completed(file.read_row_groups(row_groups, columns=columns), part, columns)

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
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
        store, path = self._store, self.path(part)
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
