"""Reading a shard for an exporter: a row group at a time, and which of its rows go on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.files import read_part
from penstock.shards.manifest import Manifest, PartFile, folder_of
from penstock.shards.rules import Rows
from penstock.storage import ObjectStore
from penstock_jobs.shards.exporters.outputs import Output

#: What `untrained` looks at.
WEIGHING = ("n_trainable", "loss_weight")


@dataclass(frozen=True)
class Source:
    """A shard. Groups end where its parts do."""

    store: ObjectStore
    manifest: Manifest

    def parts(self) -> Iterator[tuple[int, PartFile]]:
        yield from enumerate(self.manifest.files)

    def tables(self, part: PartFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Raises ShardDamaged."""
        path = f"{folder_of(self.manifest.id)}/{part.name}"
        return read_part(self.store, path, part, columns)


def keep(table: pa.Table, output: Output, *reasons: tuple[str, np.ndarray]) -> pa.Table:
    """The rows that no reason holds for. Of several the first is counted."""
    kept = np.ones(table.num_rows, bool)
    for reason, bad in reasons:
        output.leave_out(reason, int((kept & bad).sum()))
        kept &= ~bad
    return table if kept.all() else table.filter(pa.array(kept))


def missing(table: pa.Table, name: str) -> np.ndarray:
    nulls: np.ndarray = table[name].is_null().to_numpy()
    return nulls


def untrained(table: pa.Table) -> np.ndarray:
    """Rows that are there to be counted, and not to be trained."""
    trainable, weight = (table[name].to_numpy() for name in WEIGHING)
    nothing: np.ndarray = (trainable == 0) | (weight == 0)
    return nothing


def without_prompt(table: pa.Table) -> np.ndarray:
    nothing: np.ndarray = table["prompt_len"].to_numpy() == 0
    return nothing


def by_split(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for split in sorted(set(table["split"].to_pylist())):
        yield split, table.filter(pc.equal(table["split"], split))


def file_of(split: str, part: int, ending: str = "parquet") -> str:
    """Datasets of Hugging Face take the split from the name."""
    return f"{split}-{part:05d}.{ending}"


def whole(rows: Rows, name: str) -> pa.ListArray:
    """A column of numbers in lists of the plain kind."""
    return cut(rows, name, np.zeros(rows.count, np.int64), rows.tokens)


def cut(rows: Rows, name: str, start: np.ndarray, end: np.ndarray) -> pa.ListArray:
    """From `start` to `end` of each row."""
    offsets = np.append(0, np.cumsum(end - start)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(pieces(rows, name, start, end)))


def pieces(rows: Rows, name: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The same, one behind the other."""
    lists = rows.lists(name)
    place = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    inside = (place >= np.repeat(start, lists.lengths)) & (place < np.repeat(end, lists.lengths))
    found: np.ndarray = lists.numbers()[inside]
    return found
