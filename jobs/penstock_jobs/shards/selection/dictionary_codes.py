"""Dictionary codes: names as positions among sorted names.

A column of millions of names takes four bytes each, and the names are in memory once.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: The type of a column of names. The dictionary is sorted and distinct.
NAMES = pa.dictionary(pa.int32(), pa.string())
Numbers = NDArray[np.integer[Any]]
_AT_ONCE = 1_000_000


def positions_in(names: pa.Array, texts: pa.ChunkedArray | pa.Array) -> Numbers:
    """Return the position of each text among sorted names; -1 if missing."""
    places = np.full(len(texts), -1, np.int32)
    if not len(names):
        return places
    for first in range(0, len(texts), _AT_ONCE):
        some = single_array(texts.slice(first, _AT_ONCE))
        at = pc.min_element_wise(pc.search_sorted(names, some), len(names) - 1)
        same = pc.fill_null(pc.equal(names.take(at), some), False)
        found = same.to_numpy(zero_copy_only=False)
        places[first : first + len(some)][found] = at.filter(same).to_numpy()
    return places


def from_codes(numbers: Numbers, names: pa.Array) -> pa.DictionaryArray:
    """Make a column of NAMES from codes; -1 is null."""
    mask = numbers < 0
    indices = pa.array(numbers.astype(np.int32, copy=False), mask=mask if mask.any() else None)
    return pa.DictionaryArray.from_arrays(indices, names)


def encode_names(texts: pa.ChunkedArray) -> pa.DictionaryArray:
    """Encode a column as NAMES."""
    column = single_array(texts)
    if isinstance(column, pa.DictionaryArray):
        return column
    if is_sorted(column):
        return from_codes(np.arange(len(column), dtype=np.int32), column)
    valid = len(column) - column.null_count
    order = pc.sort_indices(column)[:valid]  # nulls come last
    in_order = column.take(order)
    is_first = np.ones(valid, bool)
    is_first[1:] = pc.not_equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    numbers = np.full(len(column), -1, np.int32)
    numbers[order.to_numpy()] = np.cumsum(is_first) - 1
    return from_codes(numbers, in_order.filter(pa.array(is_first)))


def is_sorted(column: pa.Array) -> bool:
    """Whether a column is sorted and distinct, without nulls."""
    ascending = pc.all(pc.less(column[:-1], column[1:])).as_py()
    return not column.null_count and ascending is not False


def codes_of(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """Return the codes of a column of NAMES; -1 for null."""
    numbers: Numbers = pc.fill_null(single_array(column).indices, -1).to_numpy()
    return numbers


def order_of(*keys: Numbers) -> Numbers:
    """Return the order of rows by these keys, the last key first."""
    return np.lexsort(keys).astype(np.int32)


def texts_of(column: pa.ChunkedArray) -> pa.Array:
    """Decode NAMES, without a copy if they are the whole dictionary."""
    names = single_array(column)
    numbers = codes_of(names)
    if len(numbers) == len(names.dictionary) and (numbers == np.arange(len(numbers))).all():
        return names.dictionary
    return names.cast(pa.string())


def single_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, copied only if it has several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
