"""A segment: one immutable Parquet file of events, and beside it one of its sessions.

The second file holds a summary row a session, so that listing sessions does not read events.
"""

import builtins
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import starmap
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.events.event import SCHEMA_VERSION, session_key
from penstock.lake.digesting import Digesting
from penstock.lake.errors import LakeDamaged
from penstock.lake.filters import join_filters, make_filter
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, RowGroupLimits, cut, payload_sizes
from penstock.lake.summary import Summariser
from penstock.lake.summary_schema import SESSION_PARTS
from penstock.storage import ObjectStore

ZSTD_LEVEL = 3
#: Summaries are made of so many rows at once: planning one costs as much as some thousand rows.
_SUMMARY_ROWS = 50_000
#: Or sooner: of the bytes of so many row groups. A flush of default size is one summary; a merge
#: is in no hurry, and makes one as soon as there is a row group that is full, or nearly.
_SUMMARY_GROUPS_OF_FLUSH = 2.0
_SUMMARY_GROUPS_OF_MERGE = 0.5
#: Summaries wait for each other too: a query of sessions opens every row group of them.
_PARTS_BYTES = 4 * 1024 * 1024
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


def discard(store: ObjectStore, name: str) -> None:
    """Clear away a file that can never be committed any more, as far as that goes. Whoever wrote
    it does so: it may have hung for longer than collection remembers the name."""
    with suppress(PenstockError, OSError):
        store.delete(name)
        store.delete(sessions_name(name))


@contextmanager
def open_segment(store: ObjectStore, name: str) -> Iterator[pq.ParquetFile]:
    """A segment or its file of sessions, to be read. Raises LakeDamaged, also for what reading
    finds until the block ends; FileNotFoundError where there is none; what the store raises."""
    with (
        telling_damage(name),
        store.open(name) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        yield file


@contextmanager
def telling_damage(name: str) -> Iterator[None]:
    """What reading this file finds wrong in it is raised as LakeDamaged. Arrow has OSError for a
    page that does not match its checksum too; where the system refused there is a number."""
    try:
        yield
    except pa.ArrowException as error:
        raise LakeDamaged(path=name, why=str(error).strip()) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise LakeDamaged(path=name, why=str(error).strip()) from error


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
    #: Of a merge: the newest commit that brought an event of each session.
    changed: Mapping[tuple[str, str], int] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _rows: int = 0
    _ts_min: int = 2**63 - 1
    _ts_max: int = -(2**63)
    _filters: list[bytes] = field(default_factory=list)
    _unsummarised: list[pa.Table] = field(default_factory=list)
    _unsummarised_rows: int = 0
    _unsummarised_bytes: int = 0
    _parts_waiting: list[pa.Table] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._events_sink = Digesting(stack.enter_context(self.store.create(self.name)))
            self._sessions_sink = Digesting(
                stack.enter_context(self.store.create(sessions_name(self.name)))
            )
            self._events = stack.enter_context(
                _parquet_writer(self._events_sink, EVENT_ROWS, bloom_rows=self._bloom_rows())
            )
            self._parts = stack.enter_context(
                _parquet_writer(self._sessions_sink, SESSION_PARTS, bloom_rows=None)
            )
            stack.push(self._summarise_the_rest)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self._stack.__exit__(*error)  # type: ignore[arg-type]  # passed through unseen

    def write(self, rows: pa.Table) -> None:
        """Rows that sort behind those written before."""
        sizes = payload_sizes(rows)
        for start, end in cut(sizes, self.limits):
            group = rows.slice(start, end - start)
            self._events.write_table(group)
            self._unsummarised.append(group)
            self._unsummarised_rows += group.num_rows
            self._unsummarised_bytes += sum(sizes[start:end])
            if self._summary_is_due():
                self._summarise()
        self._rows += rows.num_rows
        stamps = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
        self._ts_min = min(self._ts_min, stamps["min"])
        self._ts_max = max(self._ts_max, stamps["max"])

    def _bloom_rows(self) -> int | None:
        return self.limits.rows_max if self._merges else None

    @property
    def _merges(self) -> bool:
        return self.changed is not None

    def _summary_is_due(self) -> bool:
        """What waits for it is in memory."""
        groups = _SUMMARY_GROUPS_OF_MERGE if self._merges else _SUMMARY_GROUPS_OF_FLUSH
        return (
            self._unsummarised_rows >= _SUMMARY_ROWS
            or self._unsummarised_bytes >= groups * self.limits.bytes_max
        )

    def _summarise(self) -> None:
        if not self._unsummarised:
            return
        parts = self.summariser.summarise(pa.concat_tables(self._unsummarised))
        self._unsummarised.clear()
        self._unsummarised_rows = self._unsummarised_bytes = 0
        columns = (parts[name].to_pylist() for name in ("tenant", "session_id"))
        sessions: list[tuple[str, str]] = list(zip(*columns, strict=True))
        self._parts_waiting.append(self._with_changes(parts, sessions))
        if sum(one.nbytes for one in self._parts_waiting) >= _PARTS_BYTES:
            self._write_parts()
        self._filters.append(make_filter(starmap(session_key, sessions)))

    def _with_changes(self, parts: pa.Table, sessions: list[tuple[str, str]]) -> pa.Table:
        if self.changed is None:
            return parts
        snaps = pa.array([self.changed[one] for one in sessions], pa.int64())
        at = parts.column_names.index("changed_snap")
        return parts.set_column(at, parts.field("changed_snap"), snaps)

    def _write_parts(self) -> None:
        if self._parts_waiting:
            self._parts.write_table(pa.concat_tables(self._parts_waiting).combine_chunks())
            self._parts_waiting.clear()

    def _summarise_the_rest(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self._summarise()
            self._write_parts()

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
            session_filter=join_filters(self._filters),
        )


def _parquet_writer(
    sink: Digesting, schema: pa.Schema, *, bloom_rows: int | None
) -> pq.ParquetWriter:
    """A Bloom filter is kept in memory to the end, at the size that its row group could need,
    and written at that which it did."""
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
        bloom_filter_options={"session_id": {"ndv": bloom_rows}} if bloom_rows else None,
    )
