"""Files of a remote store for the query engine: the pinned ones, and no others.

DuckDB has no S3 here. It asks this file system, which reads through the object store and can open
nothing but its own names. That is a wall beside the list of allowed paths.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from penstock.backends.storage.object_store import ObjectStore, RandomAccess
from penstock.core.errors import ExtraMissing, PenstockError
from penstock.lake import LakeDamaged, QueryFailed

PROTOCOL = "penstock"
#: Parquet writes its index at the end.
_TAIL_BYTES = 64 * 1024
#: Columns are often smaller than it pays to ask for, and lie side by side.
_SPAN_BYTES = 256 * 1024
_SPANS_MAX = 64
_IDLE_MAX = 32


class DistantFile(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, start: int, length: int) -> bytes: ...


class FileTail(msgspec.Struct, frozen=True):
    size: int
    content: bytes


@dataclass
class FileTails:
    """A cache of the ends of files; files never change."""

    bytes_max: int
    _tails: OrderedDict[str, FileTail] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str) -> FileTail | None:
        with self._lock:
            tail = self._tails.get(name)
            if tail is not None:
                self._tails.move_to_end(name)
            return tail

    def put(self, name: str, tail: FileTail) -> None:
        with self._lock:
            if name not in self._tails:
                self._tails[name] = tail
                self._bytes += len(tail.content)
            while self._bytes > self.bytes_max and self._tails:
                _, dropped = self._tails.popitem(last=False)
                self._bytes -= len(dropped.content)


class _Span(msgspec.Struct, frozen=True):
    """A piece of a file that is read or being read."""

    name: str
    first: int
    size: int
    content: "Future[bytes]" = msgspec.field(default_factory=Future)

    def holds(self, name: str, start: int, length: int) -> bool:
        end = self.first + self.size
        return self.name == name and self.first <= start and start + length <= end


@dataclass
class PinnedFiles:
    """The files of one connection, which several threads may read."""

    store: ObjectStore
    tails: FileTails
    #: The last failure of the store.
    failure: PenstockError | None = None
    #: Remote files, which the engine reads through this one.
    distant: dict[str, "_PinnedFile"] = field(default_factory=dict)
    _spans: deque[_Span] = field(default_factory=lambda: deque(maxlen=_SPANS_MAX))
    #: Open sources that nobody reads now.
    _idle: deque[tuple[str, pa.NativeFile]] = field(default_factory=lambda: deque(maxlen=_IDLE_MAX))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def paths(self, names: Collection[str]) -> list[str]:
        """Let the engine read these files. Returns their paths for it."""
        if self.store.local:
            return [self.store.address(name) for name in names]
        self.distant |= {name: _PinnedFile(self, name) for name in names}
        return [f"{PROTOCOL}://{name}" for name in names]

    @contextmanager
    def failures_raised(self) -> Iterator[None]:
        """Raise failures of the store as they were: the engine passes on their text alone."""
        try:
            yield
        except QueryFailed as error:
            raise self.failure or error from None

    def tail(self, name: str) -> FileTail:
        if (tail := self.tails.get(name)) is None:
            with self._source(name) as source:
                size = source.size()
                length = min(size, _TAIL_BYTES)
                tail = FileTail(size, source.read_at(length, size - length))
            self.tails.put(name, tail)
        return tail

    def read(self, name: str, size: int, start: int, length: int) -> bytes:
        if start >= size - _TAIL_BYTES:
            content = self.tail(name).content
            first = size - len(content)
            return content[start - first : start - first + length]
        if length >= _SPAN_BYTES:
            return self._fetch(name, start, length)
        with self._lock:
            span = next((span for span in self._spans if span.holds(name, start, length)), None)
            missing = span is None
            if span is None:
                first = max(0, start + length // 2 - _SPAN_BYTES // 2)  # columns come in any order
                span = _Span(name, first, min(_SPAN_BYTES, size - first))
                self._spans.appendleft(span)
        if missing:
            try:
                span.content.set_result(self._fetch(name, span.first, span.size))
            except BaseException as error:
                span.content.set_exception(error)
                with self._lock, suppress(ValueError):  # it may have been pushed out already
                    self._spans.remove(span)
                raise
        return span.content.result()[start - span.first : start - span.first + length]

    def _fetch(self, name: str, start: int, length: int) -> bytes:
        with self._source(name) as source:
            content: bytes = source.read_at(length, start)
        return content

    @contextmanager
    def _source(self, name: str) -> Iterator[pa.NativeFile]:
        with self._lock:
            idle = next((source for source in self._idle if source[0] == name), None)
            if idle is not None:
                self._idle.remove(idle)
        try:
            source = idle[1] if idle is not None else self.store.open(name)
            yield source
        except FileNotFoundError as error:
            self.failure = LakeDamaged(path=name, why="it is missing")
            raise self.failure from error
        except PenstockError as error:
            self.failure = error
            raise
        with self._lock:
            self._idle.appendleft((name, source))


class _PinnedFile(msgspec.Struct, frozen=True):
    files: PinnedFiles
    name: str

    @property
    def size(self) -> int:
        return self.files.tail(self.name).size

    def read(self, start: int, length: int) -> bytes:
        return self.files.read(self.name, self.size, start, length)


class _Handle(RandomAccess):
    def __init__(self, file: DistantFile) -> None:
        super().__init__(file.size)
        self._file = file

    def piece(self, start: int, length: int) -> bytes:
        return self._file.read(start, length)


def make_filesystem(files: Mapping[str, DistantFile]) -> Any:
    """Make a file system with these files and no others. Raises ExtraMissing."""
    try:
        from fsspec import AbstractFileSystem
    except ImportError:
        raise ExtraMissing(what="A lake in S3", extra="s3") from None

    class PinnedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
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

    def _find(path: str) -> DistantFile:
        name = path.removeprefix(f"{PROTOCOL}://")
        if name not in files:
            raise PermissionError(f"{path} is not one of the pinned files")
        return files[name]

    return PinnedFileSystem()
