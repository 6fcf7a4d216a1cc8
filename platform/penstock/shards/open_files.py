"""The files of a shard, read again and again: kept open, and through copies where there are any."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.shards.column_copies import ColumnCopies, ColumnCopy
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import completed_rows, open_part, reporting_damage
from penstock.shards.local_copies import LocalCopies
from penstock.shards.manifest import PartFile, ShardFile, StoredShard
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS

#: Files that are kept open, and whose indexes are remembered.
_OPEN_FILES_MAX = 16

T = TypeVar("T")


class _OpenFile(NamedTuple):
    file: pq.ParquetFile
    closing: ExitStack


class OpenFiles:
    """Reads row groups. Any number of threads may do so at once, each from an opening of its own.

    Openings and the indexes of files are kept: reading an index takes as long as decoding a row
    group."""

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
                return completed_rows(
                    file.read_row_groups(row_groups, columns=columns), part, columns
                )
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
            rows = file.read_row_groups(row_groups, columns=columns)
            return completed_rows(rows, part, columns)

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
