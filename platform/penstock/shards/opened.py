"""A shard that is open for reading: chunks of its rows as numpy, from the store or local copies."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import accumulate
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvalidInput, ShardDamaged
from penstock.shards.cache import LocalCopies
from penstock.shards.columns import ROUTE_COLUMNS, Lists, to_numpy
from penstock.shards.files import open_part, telling_damage
from penstock.shards.manifest import Manifest, PartFile, RoutesFile, folder_of
from penstock.shards.order import Chunk, chunks_of
from penstock.shards.windows import Decoded
from penstock.shards.writing import group_starts
from penstock.storage import ObjectStore

#: Files that are kept open.
_IDLE_MAX = 16
#: What batches are made by, asked for or not.
_NEEDED = ("group_id", "n_tokens")


class _Opened(NamedTuple):
    """A file, and what closes it."""

    file: pq.ParquetFile
    stack: ExitStack


class OpenShard:
    """Decodes chunks. Any number of threads may do so at once."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        columns: Sequence[str],
        copies: LocalCopies | None,
    ) -> None:
        self.id = manifest.id
        self.manifest = manifest
        self._store = store
        self._folder = folder_of(self.id)
        self._copies = copies
        self._columns = [name for name in columns if name not in ROUTE_COLUMNS]
        self._route_columns = [name for name in columns if name in ROUTE_COLUMNS]
        self._idle: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = Lock()
        if self._route_columns and any(not one.routes for one in manifest.files):
            what = f"The column {self._route_columns[0]}"
            raise InvalidInput(what=what, why=f"the shard {self.id} has no routed experts")

    @cached_property
    def chunks(self) -> list[Chunk]:
        return chunks_of(self.manifest)

    def decode(self, number: int) -> Decoded:
        """Raises ShardDamaged, and what the store raises."""
        chunk = self.chunks[number]
        part = self.manifest.files[chunk.file]
        wanted = list(dict.fromkeys((*_NEEDED, *self._columns)))
        rows = self._read(part, chunk.row_groups, wanted)
        if rows.num_rows != chunk.rows:
            why = f"row groups {chunk.row_groups} have {rows.num_rows} rows, not {chunk.rows}"
            raise ShardDamaged(path=self._path(part), why=why)
        columns: dict[str, np.ndarray | Lists] = {}
        for name in self._columns:
            columns |= to_numpy(name, rows[name])
        if self._route_columns:
            columns |= self._routes(part, chunk)
        tokens = rows["n_tokens"].to_numpy()
        return Decoded(columns, tokens, np.flatnonzero(group_starts(rows["group_id"])))

    def _routes(self, part: PartFile, chunk: Chunk) -> dict[str, np.ndarray | Lists]:
        """The side file has row groups of its own: those with rows of the chunk are read."""
        side = part.routes
        assert side is not None  # looked at when the shard was opened
        ends = list(accumulate(side.row_groups))
        last_row = chunk.first_row + chunk.rows
        begins = [end - rows for end, rows in zip(ends, side.row_groups, strict=True)]
        needed = [
            number
            for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if begin < last_row and end > chunk.first_row
        ]
        rows = self._read(side, needed, self._route_columns)
        rows = rows.slice(chunk.first_row - begins[needed[0]], chunk.rows)
        columns: dict[str, np.ndarray | Lists] = {}
        for name in self._route_columns:
            columns |= to_numpy(name, rows[name])
        return columns

    def _read(
        self, part: PartFile | RoutesFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        try:
            return self._read_once(part, row_groups, columns)
        except ShardDamaged:
            if self._copies is None:
                raise
            self._copies.drop(part)
        return self._read_once(part, row_groups, columns)  # from a copy that is fetched again

    def _read_once(
        self, part: PartFile | RoutesFile, row_groups: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        with self._open(part) as file:
            return file.read_row_groups(row_groups, columns=columns)

    @contextmanager
    def _open(self, part: PartFile | RoutesFile) -> Iterator[pq.ParquetFile]:
        """A file that was left open, or the same opened again: preparing one takes as long as
        reading some thousand rows."""
        with self._lock:
            one = self._idle.pop(part.name, None)
        with ExitStack() as closing:
            one = one or self._opened(part)
            closing.push(one.stack)
            with telling_damage(self._path(part)):
                yield one.file
            closing.pop_all()
        self._keep(part.name, one)

    def _opened(self, part: PartFile | RoutesFile) -> "_Opened":
        store, path = self._store, self._path(part)
        if self._copies:
            store, path = self._copies.find(store, path, part)
        with ExitStack() as stack:
            file = stack.enter_context(open_part(store, path, part))
            return _Opened(file, stack.pop_all())

    def _keep(self, name: str, one: "_Opened") -> None:
        with self._lock:
            unneeded = [self._idle.pop(name)] if name in self._idle else []
            self._idle[name] = one
            if len(self._idle) > _IDLE_MAX:
                unneeded.append(self._idle.popitem(last=False)[1])
        for other in unneeded:
            other.stack.close()

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for one in idle:
            one.stack.close()

    def _path(self, part: PartFile | RoutesFile) -> str:
        return f"{self._folder}/{part.name}"
