"""Rows of a shard as numpy: what rules check, and what exporters write."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa


class ListColumn(NamedTuple):
    """A column of lists. `offsets` are into `values`; a missing list is an empty one."""

    values: pa.Array
    offsets: np.ndarray
    valid: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.asarray(np.diff(self.offsets))

    @property
    def rows(self) -> np.ndarray:
        """Of which row each value is."""
        return np.asarray(np.repeat(np.arange(len(self.valid)), self.lengths))

    def numbers(self, field: str | None = None) -> np.ndarray:
        values = self.values if field is None else self.values.field(field)
        return np.asarray(values.to_numpy(zero_copy_only=False))


class Rows:
    """Rows in the columns of SHARD_ROWS, as numpy."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.count = table.num_rows

    def column(self, name: str) -> pa.Array:
        column = self.table[name]
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def numbers(self, name: str) -> np.ndarray:
        return np.asarray(self.column(name).to_numpy(zero_copy_only=False))

    def present(self, name: str) -> np.ndarray:
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False))

    def lists(self, name: str) -> ListColumn:
        array = self.column(name)
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values[int(offsets[0]) : int(offsets[-1])]
        if pa.types.is_struct(values.type):
            values = pa.StructArray.from_arrays(values.flatten(), fields=list(values.type))
        return ListColumn(values, offsets - offsets[0], self.present(name))

    @cached_property
    def tokens(self) -> np.ndarray:
        return self.numbers("n_tokens").astype(np.int64)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.tokens))

    @cached_property
    def mask(self) -> np.ndarray:
        return self.lists("loss_mask").numbers()

    @cached_property
    def trained_places(self) -> np.ndarray:
        """The places of the trained tokens among all tokens."""
        return np.asarray(np.flatnonzero(self.mask))

    @cached_property
    def trained(self) -> np.ndarray:
        """How many tokens of each row are trained."""
        return np.asarray(np.diff(np.searchsorted(self.trained_places, self.offsets)))

    @cached_property
    def first_trained(self) -> np.ndarray:
        """The place of the first trained token in each row, or the row's length."""
        at = np.searchsorted(self.trained_places, self.offsets[:-1])
        first = np.append(self.trained_places, self.offsets[-1])[at]
        return np.asarray(np.minimum(first, self.offsets[1:]) - self.offsets[:-1])

    @cached_property
    def spans(self) -> ListColumn:
        return self.lists("turn_spans")

    @cached_property
    def trained_in_spans(self) -> np.ndarray:
        """How many tokens of each turn's span are trained, if it was sampled."""
        spans = self.spans
        base = self.offsets[spans.rows]
        start, end = (
            np.searchsorted(self.trained_places, base + spans.numbers(name))
            for name in ("start", "end")
        )
        return np.asarray((end - start) * spans.numbers("sampled"))

    def row_of(self, token: int) -> int:
        return int(np.searchsorted(self.offsets, token, side="right")) - 1


def group_starts(groups: pa.ChunkedArray, before: str | None = None) -> np.ndarray:
    """For each row whether a group begins there; `before` is the group of the row above all."""
    names = groups.to_numpy()
    starts = np.ones(len(names), dtype=bool)
    if len(names):
        starts[0] = names[0] != before
        starts[1:] = names[1:] != names[:-1]
    return starts
