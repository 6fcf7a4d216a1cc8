"""Files of a store that is elsewhere, as the query engine sees them: the pinned ones, no others.

DuckDB brings no S3 of its own, and fetching an extension at run time is out of the question. It
asks this file system, which reads through the object store and can open nothing but its names:
a wall by construction, beside the list of allowed paths.
"""

import io
import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from penstock.errors import ExtraMissing, PenstockError
from penstock.lake.errors import LakeDamaged
from penstock.storage import ObjectStore

PROTOCOL = "penstock"
#: What is kept of a file: its index, which Parquet writes at the end.
_TAIL_BYTES = 64 * 1024
#: Columns are often smaller than it pays to ask for, and lie side by side.
_SPAN_BYTES = 256 * 1024
#: Spans that a connection keeps, over all its files.
_SPANS_MAX = 64
#: And sources that it keeps open.
_IDLE_MAX = 32


@dataclass(frozen=True)
class FileTail:
    """A file's size and its last bytes."""

    size: int
    content: bytes

    def read(self, start: int, length: int) -> bytes:
        first = self.size - len(self.content)
        return self.content[start - first : start - first + length]


@dataclass
class FileTails:
    """The ends of files read lately, so that the next query need not fetch them. Files never
    change, and names are never used twice."""

    bytes_max: int
    _kept: OrderedDict[str, FileTail] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str) -> FileTail | None:
        with self._lock:
            tail = self._kept.get(name)
            if tail is not None:
                self._kept.move_to_end(name)
            return tail

    def put(self, name: str, tail: FileTail) -> None:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = tail
                self._bytes += len(tail.content)
            while self._bytes > self.bytes_max and self._kept:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped.content)


@dataclass(frozen=True)
class _Span:
    name: str
    first: int
    size: int
    content: "Future[bytes]" = field(default_factory=Future)

    def holds(self, name: str, start: int, length: int) -> bool:
        end = self.first + self.size
        return self.name == name and self.first <= start and start + length <= end


class _Spans:
    """The pieces of files that a connection read last, and those that are on their way: the
    engine asks for neighbouring columns at the same time."""

    def __init__(self) -> None:
        self._kept: deque[_Span] = deque(maxlen=_SPANS_MAX)
        self._lock = threading.Lock()

    def read(self, file: "_PinnedFile", start: int, length: int) -> bytes:
        with self._lock:
            span = next((kept for kept in self._kept if kept.holds(file.name, start, length)), None)
            missing = span is None
            if span is None:
                first = max(0, start + length // 2 - _SPAN_BYTES // 2)  # columns come in any order
                size = min(_SPAN_BYTES, file.size - first)
                span = _Span(file.name, first, size)
                self._kept.appendleft(span)
        if missing:
            self._fill(span, file)
        return span.content.result()[start - span.first : start - span.first + length]

    def _fill(self, span: _Span, file: "_PinnedFile") -> None:
        try:
            span.content.set_result(file.fetch(span.first, span.size))
        except BaseException as error:
            span.content.set_exception(error)
            with self._lock, suppress(ValueError):  # it may have been pushed out already
                self._kept.remove(span)
            raise


class _Idle:
    """Sources that nobody reads now, with what they have learnt. Not one for each file: a lake
    may have thousands."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, pa.NativeFile]] = deque(maxlen=_IDLE_MAX)
        self._lock = threading.Lock()

    def take(self, name: str) -> pa.NativeFile | None:
        with self._lock:
            kept = next((each for each in self._kept if each[0] == name), None)
            if kept is None:
                return None
            self._kept.remove(kept)
            return kept[1]

    def give_back(self, name: str, source: pa.NativeFile) -> None:
        with self._lock:
            self._kept.appendleft((name, source))


@dataclass
class PinnedFiles:
    """The files of one connection. What went wrong while it read stays in `failure`."""

    store: ObjectStore
    tails: FileTails
    failure: PenstockError | None = None
    spans: _Spans = field(default_factory=_Spans)
    idle: _Idle = field(default_factory=_Idle)
    files: dict[str, "_PinnedFile"] = field(default_factory=dict)

    def bind(self, connection: duckdb.DuckDBPyConnection, names: Collection[str]) -> list[str]:
        """Paths under which the connection finds these files from now on."""
        if self.store.local or not names:
            return [self.store.address(name) for name in names]
        if not self.files:
            connection.register_filesystem(_make_filesystem(self.files))
        self.files |= {name: _PinnedFile(self, name) for name in names}
        return [f"{PROTOCOL}://{name}" for name in names]

    @contextmanager
    def failures_raised(self) -> Iterator[None]:
        """A failure of the store is raised as such; the engine only passes on its text."""
        try:
            yield
        except duckdb.Error as error:
            raise self.failure or error from None


class _PinnedFile:
    """A file that several threads read, each from a source that is its own meanwhile."""

    def __init__(self, pinned: PinnedFiles, name: str) -> None:
        self._pinned = pinned
        self.name = name

    @cached_property
    def size(self) -> int:
        return self._tail().size

    def read(self, start: int, length: int) -> bytes:
        if start >= self.size - _TAIL_BYTES:
            return self._tail().read(start, length)
        if length >= _SPAN_BYTES:
            return self.fetch(start, length)
        return self._pinned.spans.read(self, start, length)

    def fetch(self, start: int, length: int) -> bytes:
        with self._source() as source:
            content: bytes = source.read_at(length, start)
        return content

    def _tail(self) -> FileTail:
        tails = self._pinned.tails
        if (tail := tails.get(self.name)) is None:
            with self._source() as source:
                size = source.size()
                length = min(size, _TAIL_BYTES)
                tail = FileTail(size, source.read_at(length, size - length))
            tails.put(self.name, tail)
        return tail

    @contextmanager
    def _source(self) -> Iterator[pa.NativeFile]:
        idle = self._pinned.idle
        try:
            source = idle.take(self.name) or self._pinned.store.open(self.name)
            yield source
        except FileNotFoundError as error:
            self._pinned.failure = LakeDamaged(path=self.name, why="it is missing")
            raise self._pinned.failure from error
        except PenstockError as error:
            self._pinned.failure = error
            raise
        idle.give_back(self.name, source)


class _Handle(io.RawIOBase):
    """What the engine opened. Two threads may share one: each has its own place in it."""

    def __init__(self, file: _PinnedFile) -> None:
        super().__init__()
        self._file = file
        self._at = threading.local()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._at, "position", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell()}
        origin = self._file.size if whence == io.SEEK_END else origins[whence]
        self._at.position = origin + offset
        return origin + offset

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        left = max(0, self._file.size - start)
        content = self._file.read(start, left if size is None or size < 0 else min(size, left))
        self._at.position = start + len(content)
        return content


def _make_filesystem(files: dict[str, _PinnedFile]) -> Any:
    try:
        from fsspec import AbstractFileSystem
    except ImportError:
        raise ExtraMissing(what="a lake in S3", extra="s3") from None

    class PinnedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
        """Exactly what DuckDB asks of a file system to read Parquet."""

        protocol = PROTOCOL
        cachable = False

        def open(self, path: str, mode: str = "rb", **_how: object) -> _Handle:
            if mode != "rb":
                raise PermissionError(f"{path} is not to be written")
            return _Handle(_find(path))

        def glob(self, path: str, **_how: object) -> list[str]:
            return [path] if self.exists(path) else []

        def exists(self, path: str, **_how: object) -> bool:
            return self._strip_protocol(path) in files

        def info(self, path: str, **_how: object) -> dict[str, object]:
            return {"name": path, "size": _find(path).size, "type": "file"}

        def modified(self, path: str) -> datetime:
            return datetime.fromtimestamp(0, UTC)

    def _find(path: str) -> _PinnedFile:
        name = path.removeprefix(f"{PROTOCOL}://")
        if name not in files:
            raise PermissionError(f"{path} is not one of the pinned files")
        return files[name]

    return PinnedFileSystem()
