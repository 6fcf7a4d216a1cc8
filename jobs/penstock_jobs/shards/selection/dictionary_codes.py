"""Names as numbers: places among sorted names, found by bisection. So a column of millions of names
takes four bytes for each, and the names are in memory once.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: A column of names; its dictionary is sorted and names nothing twice.
NAMES = pa.dictionary(pa.int32(), pa.string())
Numbers = NDArray[np.integer[Any]]
_AT_ONCE = 1_000_000


def places_among(names: pa.Array, texts: pa.ChunkedArray | pa.Array) -> Numbers:
    """Find each text among sorted names; -1: nowhere."""
    places = np.full(len(texts), -1, np.int32)
    if not len(names):
        return places
    for first in range(0, len(texts), _AT_ONCE):
        some = in_one(texts.slice(first, _AT_ONCE))
        at = pc.min_element_wise(pc.search_sorted(names, some), len(names) - 1)
        same = pc.fill_null(pc.equal(names.take(at), some), False)
        found = same.to_numpy(zero_copy_only=False)
        places[first : first + len(some)][found] = at.filter(same).to_numpy()
    return places


def named(numbers: Numbers, names: pa.Array) -> pa.DictionaryArray:
    """A column of NAMES; -1 is null."""
    mask = numbers < 0
    indices = pa.array(numbers.astype(np.int32, copy=False), mask=mask if mask.any() else None)
    return pa.DictionaryArray.from_arrays(indices, names)


def numbered(texts: pa.ChunkedArray) -> pa.DictionaryArray:
    """Make NAMES of the column."""
    column = in_one(texts)
    if isinstance(column, pa.DictionaryArray):
        return column
    if is_sorted(column):
        return named(np.arange(len(column), dtype=np.int32), column)
    valid = len(column) - column.null_count
    order = pc.sort_indices(column)[:valid]  # nulls come last
    in_order = column.take(order)
    is_first = np.ones(valid, bool)
    is_first[1:] = pc.not_equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    numbers = np.full(len(column), -1, np.int32)
    numbers[order.to_numpy()] = np.cumsum(is_first) - 1
    return named(numbers, in_order.filter(pa.array(is_first)))


def is_sorted(column: pa.Array) -> bool:
    """And names nothing twice, and has no null."""
    ascending = pc.all(pc.less(column[:-1], column[1:])).as_py()
    return not column.null_count and ascending is not False


def numbers_in(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """Of a column of NAMES; -1 for null."""
    numbers: Numbers = pc.fill_null(in_one(column).indices, -1).to_numpy()
    return numbers


def order_of(*keys: Numbers) -> Numbers:
    """The order of rows by these keys, the last one first."""
    return np.lexsort(keys).astype(np.int32)


def texts_of(column: pa.ChunkedArray) -> pa.Array:
    """Give the texts of NAMES, uncopied where they are all of the dictionary."""
    names = in_one(column)
    numbers = numbers_in(names)
    if len(numbers) == len(names.dictionary) and (numbers == np.arange(len(numbers))).all():
        return names.dictionary
    return names.cast(pa.string())


def with_texts(rows: pa.Table) -> pa.Table:
    """Take out dictionaries: of few rows these would be the most."""
    fields = [
        field.with_type(pa.string()) if field.type == NAMES else field for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def in_one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Give the column in one piece, copied only where it has several."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
