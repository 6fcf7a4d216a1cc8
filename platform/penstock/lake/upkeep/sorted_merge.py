"""Merge of sorted segments into one sorted stream of rows, in bounded memory.

Each segment is decoded into a file of small pieces, and the next pieces of each are read ahead. Up
to the first of their ends all rows are known: these are sorted and yielded. Segments that are read
side by side would hold a row group each, and the sort of a query engine needs even more.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.files import make_directory
from penstock.events.event import SEQ_MAX
from penstock.lake.rows import EVENT_ROWS, SORT_KEYS, SORTED_BY, RowGroupLimits, cut, payload_sizes
from penstock.lake.segments import open_segment

_PIECE_ROWS = 1024
_PIECES_AHEAD = 2

_Key = tuple[str, str, int, int]


def merge_sorted(
    store: ObjectStore, names: Sequence[str], *, bytes_ahead: int, directory: Path
) -> Iterator[pa.Table]:
    """Read the rows of these segments, sorted; equal ones in the order of `names`.

    `bytes_ahead` of all segments together are read ahead and yielded at once. The rest waits in an
    unnamed file in `directory`. Raises LakeDamaged, FileNotFoundError, what the store raises."""
    make_directory(directory)
    with SpooledTemporaryFile(bytes_ahead, dir=str(directory)) as file:
        runs = [_Run(store, name, file, bytes_ahead // len(names)) for name in names]
        while (rows := _take_known(runs)).num_rows:
            rows = rows.combine_chunks()
            yield rows.take(pc.sort_indices(rows, sort_keys=SORT_KEYS))  # the sort is stable


def in_row_groups(tables: Iterable[pa.Table], limits: RowGroupLimits) -> Iterator[pa.Table]:
    """Regroup rows into full row groups, so that the file does not depend on the portions."""
    waiting: pa.Table = EVENT_ROWS.empty_table()
    for table in tables:
        waiting = pa.concat_tables([waiting, table])
        groups = list(cut(payload_sizes(waiting), limits))
        for start, end in groups[:-1]:
            yield waiting.slice(start, end - start).combine_chunks()
        for start, _ in groups[-1:]:
            waiting = waiting.slice(start)
    if waiting.num_rows:
        yield waiting.combine_chunks()


class _Run:
    """A segment: the rows that were read, and the places of its other pieces in the file."""

    def __init__(self, store: ObjectStore, name: str, file: IO[bytes], bytes_ahead: int) -> None:
        self._file = file
        self._bytes_ahead = bytes_ahead
        self._rows: pa.Table = EVENT_ROWS.empty_table()
        self.pieces: deque[tuple[int, int]] = deque()
        limits = RowGroupLimits(_PIECE_ROWS, bytes_ahead // _PIECES_AHEAD)
        with open_segment(store, name) as segment_file:
            # One thread: upkeep stays out of the way of what people wait for.
            for batch in segment_file.iter_batches(_PIECE_ROWS, use_threads=False):
                rows = pa.Table.from_batches([batch]).select(EVENT_ROWS.names).cast(EVENT_ROWS)
                [rows] = rows.to_batches()
                for start, end in cut(payload_sizes(rows), limits):
                    content = rows.slice(start, end - start).serialize()
                    self.pieces.append((file.tell(), content.size))
                    file.write(content)

    def read_ahead(self) -> None:
        size = self._rows.nbytes
        read = []
        while self.pieces and (size < self._bytes_ahead or not size):
            start, piece_size = self.pieces.popleft()
            self._file.seek(start)
            content = pa.py_buffer(self._file.read(piece_size))
            read.append(pa.ipc.read_record_batch(content, EVENT_ROWS))
            size += piece_size
        if read:
            self._rows = pa.concat_tables([self._rows, pa.Table.from_batches(read)])

    def last(self) -> _Key:
        return self._key(self._rows.num_rows - 1)

    def take(self, bound: _Key | None = None, *, with_bound: bool = False) -> pa.Table:
        end = self._rows.num_rows
        if bound is not None:
            bisect = bisect_right if with_bound else bisect_left
            end = bisect(range(end), bound, key=self._key)
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        return taken

    def _key(self, at: int) -> _Key:
        tenant, session_id, ts, seq = (self._rows[name][at] for name in SORTED_BY)
        number = seq.as_py()
        return tenant.as_py(), session_id.as_py(), ts.value, SEQ_MAX if number is None else number


def _take_known(runs: Sequence[_Run]) -> pa.Table:
    """Take all rows that sort before every unread row. Equal rows of an earlier run come first, so
    rows of a later run wait while an earlier one may have more."""
    for run in runs:
        run.read_ahead()
    ends = [(run.last(), number) for number, run in enumerate(runs) if run.pieces]
    if not ends:
        return pa.concat_tables([run.take() for run in runs])
    bound, bounding = min(ends)
    return pa.concat_tables(
        [run.take(bound, with_bound=number <= bounding) for number, run in enumerate(runs)]
    )
