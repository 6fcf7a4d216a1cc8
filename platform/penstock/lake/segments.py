"""Segments. A segment is one immutable Parquet file of events. Beside it upkeep puts one with a
summary row for each session, so that listing sessions reads no events."""

import atexit
import builtins
import hashlib
import io
import threading
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib.resources import files
from typing import Any, BinaryIO, Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.errors import PenstockError
from penstock.core.files import tenant_folder
from penstock.core.settings import MIB
from penstock.events.event import SCHEMA_VERSION, session_hash, session_key
from penstock.lake import LakeDamaged
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, TIMESTAMP, RowGroupLimits, cut, payload_sizes

ZSTD_LEVEL = 3
#: Memory for summaries that readers made because upkeep had not yet.
_MADE_BYTES_MAX = 16 * MIB
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


@contextmanager
def present(name: str) -> Iterator[None]:
    """Raise LakeDamaged if the block finds a segment missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise LakeDamaged(path=name, why="it is missing") from error


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


class TableMemory:
    """A cache of tables that were read lately. Not shared between threads."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._tables: dict[Hashable, tuple[pa.Table, int]] = {}

    def read(self, key: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        table, size = self._tables.pop(key, (None, 0))
        if table is None:
            table = read()
            size = table.nbytes  # takes long: each buffer is looked at
            self._left -= size
        self._tables[key] = table, size
        while self._left < 0:
            self._left += self._tables.pop(next(iter(self._tables)))[1]
        return table


_made, _making = TableMemory(_MADE_BYTES_MAX), threading.Lock()


def read_summaries(
    store: ObjectStore, name: str, columns: list[str] = SESSION_PARTS.names
) -> pa.Table:
    """Read the summaries of a segment that has to be there. Raises LakeDamaged."""
    with present(name):
        return find_summaries(store, name, columns)


def find_summaries(store: ObjectStore, name: str, columns: list[str]) -> pa.Table:
    """Read the summaries of a segment's sessions, or make them of its events as long as upkeep has
    not. Raises what `open_segment` does."""
    with suppress(FileNotFoundError), open_segment(store, sessions_name(name)) as file:
        return file.read(columns)
    with _making:
        return _made.read(name, partial(_summarise, store, name)).select(columns)


def _summarise(store: ObjectStore, name: str) -> pa.Table:
    return pa.concat_tables(_parts_of(store, name))


def _parts_of(store: ObjectStore, name: str) -> Iterator[pa.Table]:
    """Summarise a segment, a row group at a time."""
    with open_segment(store, name) as file:
        for number in range(file.metadata.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            yield process_summariser().summarise(rows.select(EVENT_ROWS.names).cast(EVENT_ROWS))


#: The newest commit with an event of each session.
ChangedSnaps = Mapping[tuple[str, str], int]


def write_summaries(
    store: ObjectStore, name: str, changed: ChangedSnaps | None = None
) -> dict[str, Any]:
    """Put its file of sessions beside a segment; a merged one is given `changed`. Returns what the
    segment's row says of it."""
    with store.create(sessions_name(name)) as content:
        sink, waiting = DigestingFile(content), list[pa.Table]()
        with _parquet_writer(sink, SESSION_PARTS, bloom_rows=None) as writer:
            for parts in _parts_of(store, name):
                waiting.append(parts if changed is None else _with_snaps(parts, changed))
                if sum(each.nbytes for each in waiting) >= _PARTS_BYTES:
                    writer.write_table(pa.concat_tables(waiting).combine_chunks())
                    waiting.clear()
            if waiting:
                writer.write_table(pa.concat_tables(waiting).combine_chunks())
    return {"sessions_bytes": sink.size, "sessions_sha256": sink.digest.hexdigest()}


def _with_snaps(parts: pa.Table, changed: ChangedSnaps) -> pa.Table:
    columns = (parts[name].to_pylist() for name in ("tenant", "session_id"))
    snaps = pa.array([changed[session] for session in zip(*columns, strict=True)], pa.int64())
    at = parts.column_names.index("changed_snap")
    return parts.set_column(at, parts.field("changed_snap"), snaps)


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
    ts_min: int
    ts_max: int
    session_filter: "builtins.bytes"
    #: Nothing as long as it has no file of sessions.
    sessions_bytes: int = 0
    sessions_sha256: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass
class SegmentWriter:
    """Writes sorted rows. Use it as a context manager; read `finished` afterwards."""

    store: ObjectStore
    name: str
    tenant: str
    limits: RowGroupLimits
    #: Whether it is merged, and so found by a Bloom filter of sessions.
    merged: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _rows: int = 0
    _ts_min: int = 2**63 - 1
    _ts_max: int = -(2**63)
    _prefixes: list[SessionPrefixes] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._sink = DigestingFile(stack.enter_context(self.store.create(self.name)))
            bloom_rows = self.limits.rows_max if self.merged else None
            self._events = stack.enter_context(
                _parquet_writer(self._sink, EVENT_ROWS, bloom_rows=bloom_rows)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self._stack.__exit__(*error)  # type: ignore[arg-type]  # passed through unseen

    def write(self, rows: pa.Table) -> None:
        """Write rows that sort behind the earlier ones. Raises RuntimeError for another
        tenant's."""
        import pyarrow.compute as pc

        if not pc.all(pc.equal(rows["tenant"], self.tenant)).as_py():
            raise RuntimeError(f"rows of another tenant than {self.tenant} for {self.name}")
        for start, end in cut(payload_sizes(rows), self.limits):
            self._events.write_table(rows.slice(start, end - start))
        ids = pc.unique(rows["session_id"]).to_pylist()
        self._prefixes.append(session_prefixes(session_key(self.tenant, id_) for id_ in ids))
        self._rows += rows.num_rows
        stamps = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
        self._ts_min = min(self._ts_min, stamps["min"])
        self._ts_max = max(self._ts_max, stamps["max"])

    @cached_property
    def finished(self) -> SegmentFile:
        prefixes = [np.empty(0, "<u4"), *self._prefixes]
        return SegmentFile(
            name=self.name,
            tenant=self.tenant,
            rows=self._rows,
            bytes=self._sink.size,
            sha256=self._sink.digest.hexdigest(),
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
