"""Segments. A segment is one immutable Parquet file of events, and beside it one with a summary row
for each session, so that listing sessions reads no events."""

import atexit
import builtins
import hashlib
import io
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from itertools import starmap
from typing import BinaryIO, Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.errors import PenstockError
from penstock.core.files import tenant_folder
from penstock.events.event import SCHEMA_VERSION, session_hash, session_key
from penstock.lake.errors import LakeDamaged
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, TIMESTAMP, RowGroupLimits, cut, payload_sizes

ZSTD_LEVEL = 3
#: Rows in memory that are summarised together, or row groups whose bytes they may have.
_SUMMARY_ROWS = 50_000
_SUMMARY_GROUPS_OF_FLUSH, _SUMMARY_GROUPS_OF_MERGE = 2.0, 0.5
#: Bytes of a row group of summaries. A query of sessions opens each.
_PARTS_BYTES = 4 * 1024 * 1024
_PAGE_BYTES = 1024 * 1024
_SUFFIX = ".parquet"
_SESSIONS_SUFFIX = ".sessions.parquet"
#: Columns with few distinct values in a row group.
_DICTIONARY = [
    *("tenant", "session_id", "type", "source", "checkpoint", "user", "project", "consent"),
    *("schema_version", "received_at"),
]


# Names and reading


def new_name(
    tenant: str, partition: int, label: str, folder: str = "events", suffix: str = _SUFFIX
) -> str:
    """Make a unique name in the tenant's folder."""
    place = f"{folder}/{tenant_folder(tenant)}/p-{partition:04d}"
    return f"{place}/{label}-{uuid.uuid4().hex[:12]}{suffix}"


def sessions_name(name: str) -> str:
    return name.removesuffix(_SUFFIX) + _SESSIONS_SUFFIX


def segment_name(name: str) -> str:
    return name.removesuffix(_SESSIONS_SUFFIX).removesuffix(_SUFFIX) + _SUFFIX


def discard(store: ObjectStore, name: str) -> None:
    """Try to delete a file that can never be committed. Collection may have forgotten its name if
    the writer hung."""
    with suppress(PenstockError, OSError):
        store.delete(name)
        store.delete(sessions_name(name))


@contextmanager
def open_segment(store: ObjectStore, name: str) -> Iterator[pq.ParquetFile]:
    """Open a segment, or its file of sessions, to read. Raises LakeDamaged, also while it is read,
    FileNotFoundError, and what the store raises."""
    try:
        with (
            store.open(name) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            yield file
    except (pa.ArrowException, OSError) as error:
        # An OSError without a number is Arrow's, of a page that does not match its checksum.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise LakeDamaged(path=name, why=str(error).strip()) from error


# Session filters: the sorted upper halves of the sessions' hashes, four bytes per session. A filter
# of 10,000 sessions takes about one in 400,000 others for its own.

SessionPrefixes = npt.NDArray[np.uint32]


def session_prefixes(sessions: Iterable[str]) -> SessionPrefixes:
    return np.fromiter((session_hash(session) >> 32 for session in sessions), np.uint32)


def make_filter(sessions: Iterable[str]) -> bytes:
    return np.unique(session_prefixes(sessions)).astype("<u4").tobytes()


def read_filter(stored: bytes) -> SessionPrefixes:
    return np.frombuffer(stored, "<u4")


def may_hold(session_filter: SessionPrefixes, prefixes: SessionPrefixes) -> npt.NDArray[np.bool_]:
    """Whether the segment may hold the session of each prefix."""
    if not len(session_filter):
        return np.zeros(len(prefixes), np.bool_)
    positions = np.minimum(np.searchsorted(session_filter, prefixes), len(session_filter) - 1)
    hits: npt.NDArray[np.bool_] = session_filter[positions] == prefixes
    return hits


# Summaries of sessions

#: One row per session in a batch of events: the result of `summary.sql`.
#:
#: Rows of a session are merged by column: counts by sum, `first_*` by min, `last_*` by max,
#: `consent` by the strictest, `checkpoints` by union. A column with a time beside it (`user_ts`, …)
#: takes the latest, `model` the latest by `model_ts`, `client` to `link` by `start_ts`,
#: `end_reason` by `end_ts`.
#:
#: In a merged segment `changed_snap` is the newest commit with an event of the session.
SESSION_PARTS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("tenant", "session_id")),
        pa.field("events", pa.int64(), nullable=False),
        *(pa.field(name, TIMESTAMP, nullable=False) for name in ("first_ts", "last_ts")),
        *(pa.field(name, TIMESTAMP) for name in ("first_received_at", "last_received_at")),
        *(
            pa.field(name + suffix, kind)
            for name in ("user", "project", "source", "checkpoint")
            for suffix, kind in (("", pa.string()), ("_ts", TIMESTAMP))
        ),
        pa.field("checkpoints", pa.list_(pa.string()), nullable=False),
        pa.field("consent", pa.string(), nullable=False),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in (
                *("user_messages", "model_calls", "tool_calls", "failed_tool_calls", "edits"),
                *("feedback", "feedback_positive", "feedback_negative", "interrupts", "errors"),
                *("prompt_tokens", "completion_tokens"),
            )
        ),
        pa.field("model_ts", TIMESTAMP),
        pa.field("model", pa.string()),
        pa.field("start_ts", TIMESTAMP),
        *(
            pa.field(name, pa.string())
            for name in (
                *("client", "client_version", "repo", "branch", "commit"),
                *("task_id", "group_id", "arm", "parent_session", "link"),
            )
        ),
        pa.field("end_ts", TIMESTAMP),
        pa.field("end_reason", pa.string()),
        pa.field("changed_snap", pa.int64()),
    ]
)
_SUMMARY_SQL = files("penstock.lake").joinpath("summary.sql").read_text(encoding="utf-8")


class _GivenRows:
    """The rows of one call, for a statement that is planned once for all calls."""

    def __init__(self) -> None:
        self.table = EVENT_ROWS.empty_table()

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Summariser:
    """Makes a summary row for each session of rows of events. Safe to share between threads."""

    def __init__(self) -> None:
        self._given = _GivenRows()
        self._lock = threading.Lock()

    def summarise(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return SESSION_PARTS.empty_table()
        with self._lock:
            self._given.table = rows
            try:
                parts = self._connection.sql("EXECUTE summary").to_arrow_table()
            finally:
                self._given.table = EVENT_ROWS.empty_table()
        return parts.select(SESSION_PARTS.names).cast(SESSION_PARTS)

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:", config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", self._given)
        # Planning takes as long as summarising ten thousand rows.
        connection.execute(f"PREPARE summary AS {_SUMMARY_SQL}")
        atexit.register(connection.close)  # or its library complains
        return connection


@cache
def process_summariser() -> Summariser:
    """Make the summariser that all lakes of this process share."""
    return Summariser()


# Writing


class DigestingFile(io.RawIOBase):
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


@dataclass(frozen=True)
class SegmentFile:
    name: str
    tenant: str
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
    """Writes sorted rows. Use it as a context manager; read `finished` afterwards."""

    store: ObjectStore
    name: str
    tenant: str
    limits: RowGroupLimits
    summariser: Summariser
    #: The summaries of all rows, if they are made already.
    summaries: pa.Table | None = None
    #: For a merge: the newest commit with an event of each session.
    changed: Mapping[tuple[str, str], int] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _rows: int = 0
    _ts_min: int = 2**63 - 1
    _ts_max: int = -(2**63)
    _prefixes: list[SessionPrefixes] = field(default_factory=list)
    _unsummarised: list[pa.Table] = field(default_factory=list)
    _unsummarised_rows: int = 0
    _unsummarised_bytes: int = 0
    _parts_waiting: list[pa.Table] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Ends last, and makes the names of both durable.
            self._events_sink = DigestingFile(stack.enter_context(self.store.create(self.name)))
            sessions = self.store.create(sessions_name(self.name), durable=False)
            self._sessions_sink = DigestingFile(stack.enter_context(sessions))
            bloom_rows = None if self.changed is None else self.limits.rows_max
            self._events = stack.enter_context(
                _parquet_writer(self._events_sink, EVENT_ROWS, bloom_rows=bloom_rows)
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
        """Write rows that sort behind the earlier ones. Raises RuntimeError for another
        tenant's."""
        if not pc.all(pc.equal(rows["tenant"], self.tenant)).as_py():
            raise RuntimeError(f"rows of another tenant than {self.tenant} for {self.name}")
        groups = _SUMMARY_GROUPS_OF_FLUSH if self.changed is None else _SUMMARY_GROUPS_OF_MERGE
        sizes = payload_sizes(rows)
        for start, end in cut(sizes, self.limits):
            group = rows.slice(start, end - start)
            self._events.write_table(group)
            self._unsummarised.append(group)
            self._unsummarised_rows += group.num_rows
            self._unsummarised_bytes += sum(sizes[start:end])
            if self.summaries is None and (
                self._unsummarised_rows >= _SUMMARY_ROWS
                or self._unsummarised_bytes >= groups * self.limits.bytes_max
            ):
                self._summarise()
        self._rows += rows.num_rows
        stamps = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
        self._ts_min = min(self._ts_min, stamps["min"])
        self._ts_max = max(self._ts_max, stamps["max"])

    def _summarise(self, *, last: bool = False) -> None:
        if self._unsummarised:
            parts = self.summaries
            if parts is None:
                parts = self.summariser.summarise(pa.concat_tables(self._unsummarised))
            self._unsummarised.clear()
            self._unsummarised_rows = self._unsummarised_bytes = 0
            columns = (parts[name].to_pylist() for name in ("tenant", "session_id"))
            sessions: list[tuple[str, str]] = list(zip(*columns, strict=True))
            if self.changed is not None:
                snaps = pa.array([self.changed[session] for session in sessions], pa.int64())
                at = parts.column_names.index("changed_snap")
                parts = parts.set_column(at, parts.field("changed_snap"), snaps)
            self._parts_waiting.append(parts)
            self._prefixes.append(session_prefixes(starmap(session_key, sessions)))
        size = sum(waiting.nbytes for waiting in self._parts_waiting)
        if self._parts_waiting and (last or size >= _PARTS_BYTES):
            self._parts.write_table(pa.concat_tables(self._parts_waiting).combine_chunks())
            self._parts_waiting.clear()

    def _summarise_the_rest(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self._summarise(last=True)

    @cached_property
    def finished(self) -> SegmentFile:
        prefixes = [np.empty(0, "<u4"), *self._prefixes]
        return SegmentFile(
            name=self.name,
            tenant=self.tenant,
            rows=self._rows,
            bytes=self._events_sink.size,
            sha256=self._events_sink.digest.hexdigest(),
            sessions_bytes=self._sessions_sink.size,
            sessions_sha256=self._sessions_sink.digest.hexdigest(),
            ts_min=self._ts_min,
            ts_max=self._ts_max,
            session_filter=np.unique(np.concatenate(prefixes)).astype("<u4").tobytes(),
        )


def _parquet_writer(
    sink: DigestingFile, schema: pa.Schema, *, bloom_rows: int | None
) -> pq.ParquetWriter:
    """Make a writer. A Bloom filter stays in memory to the end, at the size of a full row group."""
    events = schema is EVENT_ROWS
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=_DICTIONARY if events else True,
        data_page_size=_PAGE_BYTES,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(
            schema, [(name, "ascending") for name in (SORTED_BY if events else SORTED_BY[:2])]
        ),
        bloom_filter_options={"session_id": {"ndv": bloom_rows}} if bloom_rows else None,
    )
