"""Files of a shard that are read from again and again, from the store or from local copies."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.shards.cache import LocalCopies
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import open_part, telling_damage
from penstock.shards.manifest import PartFile, RoutesFile
from penstock.storage import ObjectStore

#: Files that are kept open, and of which the index is remembered.
_FILES_MAX = 16


T = TypeVar("T")


class _Opened(NamedTuple):
    """A file, and what closes it."""

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
        self._idle: OrderedDict[str, _Opened] = OrderedDict()
        self._indexes: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._first_opening: defaultdict[str, Lock] = defaultdict(Lock)

    def path(self, part: PartFile | RoutesFile) -> str:
        return f"{self._folder}/{part.name}"

    def read(
        self, part: PartFile | RoutesFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        """Raises ShardDamaged, and what the store raises. A damaged copy is fetched again."""
        try:
            return self._read(part, row_groups, columns)
        except ShardDamaged:
            if self._copies is None:
                raise
            self._forget(part)
            self._copies.drop(part)
        return self._read(part, row_groups, columns)

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for one in idle:
            one.closing.close()

    def _read(
        self, part: PartFile | RoutesFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        with self._opening(part) as file:
            return file.read_row_groups(row_groups, columns=columns)

    @contextmanager
    def _opening(self, part: PartFile | RoutesFile) -> Iterator[pq.ParquetFile]:
        with self._lock:
            one = self._idle.pop(part.name, None)
            first = self._first_opening[part.name]
        if one is None:
            with first:  # so that its index is read once
                one = self._open(part)
        with ExitStack() as closing:
            closing.push(one.closing)
            with telling_damage(self.path(part)):
                yield one.file
            closing.pop_all()
        self._keep(part.name, one)

    def _open(self, part: PartFile | RoutesFile) -> _Opened:
        store, path = self._store, self.path(part)
        if self._copies:
            store, path = self._copies.find(store, path, part)
        with self._lock:
            index = self._indexes.get(part.name)
        with ExitStack() as closing:
            file = closing.enter_context(open_part(store, path, part, index))
            with self._lock:
                _remember(self._indexes, part.name, file.metadata)
            return _Opened(file, closing.pop_all())

    def _keep(self, name: str, one: _Opened) -> None:
        with self._lock:
            unneeded = [self._idle.pop(name)] if name in self._idle else []
            unneeded += _remember(self._idle, name, one)
        for other in unneeded:
            other.closing.close()

    def _forget(self, part: PartFile | RoutesFile) -> None:
        with self._lock:
            one = self._idle.pop(part.name, None)
            self._indexes.pop(part.name, None)
        if one:
            one.closing.close()


def _remember(things: OrderedDict[str, T], name: str, thing: T) -> list[T]:
    """The newest at the end; what there is no more room for."""
    things[name] = thing
    things.move_to_end(name)
    return [things.popitem(last=False)[1]] if len(things) > _FILES_MAX else []
