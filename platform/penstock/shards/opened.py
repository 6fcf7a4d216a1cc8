"""A shard that is open for reading: chunks of its rows as numpy."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from penstock.errors import InvalidInput
from penstock.shards.cache import LocalCopies
from penstock.shards.columns import ROUTE_COLUMNS, Lists, to_numpy
from penstock.shards.errors import ShardDamaged
from penstock.shards.manifest import Manifest, PartFile, folder_of
from penstock.shards.open_files import OpenFiles
from penstock.shards.order import Chunk, chunks_of
from penstock.shards.windows import Decoded
from penstock.shards.writing import group_starts
from penstock.storage import ObjectStore

#: What batches are made by, asked for or not.
_NEEDED = ("group_id", "n_tokens")


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
        self._files = OpenFiles(store, folder_of(self.id), copies)
        self._columns = [name for name in columns if name not in ROUTE_COLUMNS]
        self._route_columns = [name for name in columns if name in ROUTE_COLUMNS]
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
        rows = self._files.read(part, chunk.row_groups, wanted)
        if rows.num_rows != chunk.rows:
            why = f"row groups {chunk.row_groups} have {rows.num_rows} rows, not {chunk.rows}"
            raise ShardDamaged(path=self._files.path(part), why=why)
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
        rows = self._files.read(side, needed, self._route_columns)
        rows = rows.slice(chunk.first_row - begins[needed[0]], chunk.rows)
        columns: dict[str, np.ndarray | Lists] = {}
        for name in self._route_columns:
            columns |= to_numpy(name, rows[name])
        return columns

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        self._files.close()
