"""A segment: one immutable Parquet file of events, and beside it one of its sessions.

The second file holds a summary row a session, so that listing sessions does not read events.
"""

import builtins
import hashlib
import io
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.events.envelope import SCHEMA_VERSION
from penstock.events.identity import session_key
from penstock.lake.filters import make_filter
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, RowGroupLimits, cut
from penstock.lake.summary import Summariser
from penstock.lake.summary_schema import SESSION_PARTS
from penstock.storage import ObjectStore

ZSTD_LEVEL = 3
#: Summaries are made of so many rows at once: planning one costs as much as some thousand rows.
_SUMMARY_ROWS = 50_000
_SUFFIX = ".parquet"
_SESSIONS_SUFFIX = ".sessions.parquet"
#: Few distinct values a row group: worth a dictionary. Payloads and identities are not.
_DICTIONARY = [
    *("tenant", "session_id", "type", "source", "checkpoint", "user", "project", "consent"),
    *("schema_version", "received_at"),
]


def new_name(partition: int, label: str) -> str:
    """A name that nobody else will take; files are never overwritten."""
    return f"events/p-{partition:04d}/{label}-{uuid.uuid4().hex[:12]}{_SUFFIX}"


def sessions_name(name: str) -> str:
    """The file of summaries beside a segment."""
    return name.removesuffix(_SUFFIX) + _SESSIONS_SUFFIX


def segment_name(name: str) -> str:
    """The segment that a file in the store belongs to."""
    return name.removesuffix(_SESSIONS_SUFFIX).removesuffix(_SUFFIX) + _SUFFIX


@dataclass(frozen=True)
class SegmentFile:
    """What a finished segment is, as the metadata database will know it."""

    name: str
    rows: int
    bytes: int
    sha256: str
    sessions_bytes: int
    sessions_sha256: str
    ts_min: int
    ts_max: int
    session_filter: "builtins.bytes"
    schema_version: int = SCHEMA_VERSION


@dataclass
class SegmentWriter:
    """Writes sorted rows. Use as a context manager; `finished` is there afterwards."""

    store: ObjectStore
    name: str
    limits: RowGroupLimits
    summariser: Summariser
    compacted: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _rows: int = 0
    _ts_min: int = 2**63 - 1
    _ts_max: int = -(2**63)
    _sessions: set[str] = field(default_factory=set)
    _unsummarised: list[pa.Table] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._events_sink = _Digesting(stack.enter_context(self.store.create(self.name)))
            self._sessions_sink = _Digesting(
                stack.enter_context(self.store.create(sessions_name(self.name)))
            )
            self._events = stack.enter_context(
                _parquet_writer(self._events_sink, EVENT_ROWS, bloom=self.compacted)
            )
            self._parts = stack.enter_context(
                _parquet_writer(self._sessions_sink, SESSION_PARTS, bloom=False)
            )
            stack.push(self._summarise_the_rest)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self._stack.__exit__(*error)  # type: ignore[arg-type]  # passed through unseen

    def write(self, rows: pa.Table) -> None:
        """Rows that sort behind those written before."""
        for group in _row_groups(rows, self.limits):
            self._events.write_table(group)
        self._rows += rows.num_rows
        self._unsummarised.append(rows)
        if sum(one.num_rows for one in self._unsummarised) >= _SUMMARY_ROWS:
            self._summarise()
        stamps = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
        self._ts_min = min(self._ts_min, stamps["min"])
        self._ts_max = max(self._ts_max, stamps["max"])

    def _summarise(self) -> None:
        if not self._unsummarised:
            return
        parts = self.summariser.summarise(pa.concat_tables(self._unsummarised))
        self._unsummarised.clear()
        self._parts.write_table(parts)
        tenants, ids = parts["tenant"].to_pylist(), parts["session_id"].to_pylist()
        self._sessions.update(map(session_key, tenants, ids))

    def _summarise_the_rest(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self._summarise()

    @cached_property
    def finished(self) -> SegmentFile:
        return SegmentFile(
            name=self.name,
            rows=self._rows,
            bytes=self._events_sink.size,
            sha256=self._events_sink.digest.hexdigest(),
            sessions_bytes=self._sessions_sink.size,
            sessions_sha256=self._sessions_sink.digest.hexdigest(),
            ts_min=self._ts_min,
            ts_max=self._ts_max,
            session_filter=make_filter(self._sessions),
        )


def _row_groups(rows: pa.Table, limits: RowGroupLimits) -> Iterator[pa.Table]:
    sizes = pc.binary_length(rows["payload"]).to_pylist()
    for start, end in cut(sizes, limits):
        yield rows.slice(start, end - start)


def _parquet_writer(sink: "_Digesting", schema: pa.Schema, *, bloom: bool) -> pq.ParquetWriter:
    events = schema is EVENT_ROWS
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=_DICTIONARY if events else True,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(
            schema, [(name, "ascending") for name in (SORTED_BY if events else SORTED_BY[:2])]
        ),
        bloom_filter_options={"session_id": True} if bloom else None,
    )


class _Digesting(io.RawIOBase):
    """Passes bytes on to a file and keeps their checksum."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # Arrow's buffers have no Python type
        self._file.write(view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size
