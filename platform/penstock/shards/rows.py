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
        lengths: np.ndarray = np.diff(self.offsets)
        return lengths

    @property
    def rows(self) -> np.ndarray:
        """Of which row each value is."""
        rows: np.ndarray = np.repeat(np.arange(len(self.valid)), self.lengths)
        return rows

    def numbers(self, field: str | None = None) -> np.ndarray:
        values = self.values if field is None else self.values.field(field)
        numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
        return numbers


class Rows:
    """Rows in the columns of SHARD_ROWS, as numpy."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.count = table.num_rows

    def column(self, name: str) -> pa.Array:
        column = self.table[name]
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def numbers(self, name: str) -> np.ndarray:
        numbers: np.ndarray = self.column(name).to_numpy(zero_copy_only=False)
        return numbers

    def present(self, name: str) -> np.ndarray:
        present: np.ndarray = self.column(name).is_valid().to_numpy(zero_copy_only=False)
        return present

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
        places: np.ndarray = np.flatnonzero(self.mask)
        return places

    @cached_property
    def trained(self) -> np.ndarray:
        """How many tokens of each row are trained."""
        trained: np.ndarray = np.diff(np.searchsorted(self.trained_places, self.offsets))
        return trained

    @cached_property
    def first_trained(self) -> np.ndarray:
        """The place of the first trained token in each row, or the row's length."""
        at = np.searchsorted(self.trained_places, self.offsets[:-1])
        first = np.append(self.trained_places, self.offsets[-1])[at]
        within: np.ndarray = np.minimum(first, self.offsets[1:]) - self.offsets[:-1]
        return within

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
        inside: np.ndarray = (end - start) * spans.numbers("sampled")
        return inside

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
