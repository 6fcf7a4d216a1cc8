"""Queries by users: read-only SQL over one tenant's rows, with limits on memory and time; and their
rows as JSON, CSV, Parquet or an Arrow stream.

Two walls: the statement is checked before it runs (`query_guard`), and the connection that runs it
can open no files but those of the pinned lake.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.lake.catalog import READER_LEASE_SECONDS, Pin, pinned
from penstock.lake.duplicates import KnownEvents
from penstock.lake.errors import QueryFailed, QueryLimitReached
from penstock.lake.fresh_events import NOTHING_FRESH, FreshEvents, arrivals_of, read_fresh
from penstock.lake.pinned_files import PinnedFiles
from penstock.lake.query_guard import check_query
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.view_sources import (
    LAKE_VIEWS,
    ViewSources,
    bind_room_views,
    relation_sql,
    view_names,
)

if TYPE_CHECKING:  # a lake makes queries
    from penstock.lake.lake import Lake

BATCH_ROWS = 10_000
#: How often a query pins the lake anew because the log let go of fresh events meanwhile.
_PINS_MAX = 5
#: The one view that reads summaries of sessions and no events.
_SESSIONS = "sessions"
_CONSENT_CHANGES = pa.schema([(n, pa.string()) for n in ("tenant", "session_id", "consent")])

Format = Literal["json", "csv", "arrow", "parquet"]

_encoder = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True)
class OwnQuery:
    """SQL of our own: it is not checked, may have parameters, and reads no views but `views`."""

    sql: str
    views: frozenset[str]
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Rows in batches, the snap that they are of, and whether the newest events are missing."""

    batches: pa.RecordBatchReader
    snap: int
    cut_off: bool


@dataclass(frozen=True)
class LakeQuery:
    """Runs each time that its rows are asked for."""

    lake: "Lake"
    sql: str | OwnQuery
    as_of: str | int | None
    tenant: str

    def arrow(self) -> pa.Table:
        with self.run() as answer:
            return answer.batches.read_all()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time: memory stays bounded whatever their number."""
        with self.run() as answer:
            yield from answer.batches

    @contextmanager
    def run(self) -> Iterator[Answer]:
        """The answer with what is known of it, readable until the block ends. Raises QueryRefused,
        QueryFailed, QueryLimitReached, SnapshotUnknown, HistoryRemoved."""
        lake, query = self.lake, self.sql
        room = lake.settings.room(LakeSettings)
        memory_kib = room.query_memory_bytes_max // 1024
        configuration: dict[str, str | bool | int | float | list[str]] = {
            "threads": room.query_threads,
            "memory_limit": f"{memory_kib}KiB",
            "temp_directory": str(Path(lake.settings.data) / "tmp"),
            "max_temp_directory_size": f"{4 * memory_kib}KiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        with duckdb.connect(":memory:", config=configuration) as connection, ExitStack() as claims:
            if isinstance(query, str):
                query = OwnQuery(query, check_query(connection, query, view_names()))
            pin, fresh = self._pin(claims, room, with_fresh=bool(query.views & LAKE_VIEWS))
            files = PinnedFiles(lake.store, lake.tails)
            sources = ViewSources(
                connection, files, lake.database, self.tenant, pin.snap, pin.moment
            )
            with _limits(connection, room), files.failures_raised():
                self._prepare(sources, query.views, pin, fresh)
                result = connection.sql(query.sql, params=query.parameters or None)
                batches = result.to_arrow_reader(BATCH_ROWS)
                names = batches.schema.names
                if twice := next((name for name in names if names.count(name) > 1), None):
                    # Rows are shown by name: one of the two would be lost.
                    why = f"two columns are named {twice}; give one of them another name"
                    raise QueryFailed(why=why)
                yield Answer(batches, pin.snap, fresh.cut_off)

    def _pin(
        self, claims: ExitStack, room: LakeSettings, *, with_fresh: bool
    ) -> tuple[Pin, FreshEvents]:
        """The lake, and what the log holds beyond it, as of one moment."""
        lake = self.lake
        lease_s = max(READER_LEASE_SECONDS, room.query_seconds_max)
        for _ in range(_PINS_MAX):
            pin = claims.enter_context(pinned(lake.database, self.as_of, lease_s))
            if self.as_of not in (None, "latest") or not with_fresh:
                return pin, NOTHING_FRESH
            fresh = read_fresh(
                lake.log,
                arrivals_of(lake.log.partitions, lake.settings),
                next_offsets=pin.next_offsets,
                known=KnownEvents(lake.database, lake.store, bytes_max=room.known_bytes_max),
                snap=pin.snap,
                bytes_max=room.query_memory_bytes_max // 8,
            )
            if not fresh.overtaken:
                return pin, fresh
        return pin, replace(fresh, cut_off=True)

    def _prepare(
        self, sources: ViewSources, views: frozenset[str], pin: Pin, fresh: FreshEvents
    ) -> None:
        """Create the views that the query reads, and shut the connection off from all else."""
        connection = sources.connection
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET VARIABLE tenant = ?", [sources.tenant])
        if _SESSIONS in views:
            names = [sessions_name(segment.name) for segment in pin.segments]
            sources.bind_files("stored_sessions", names, SESSION_PARTS)
            connection.register("fresh_sessions", self.lake.summariser.summarise(fresh.rows))
            connection.execute(relation_sql("session_parts"))
        if views & LAKE_VIEWS - {_SESSIONS}:
            names = [segment.name for segment in pin.segments]
            sources.bind_files("stored_events", names, EVENT_ROWS)
            connection.register("fresh_events", fresh.rows)
            rows = [
                {"tenant": tenant, "session_id": session_id, "consent": consent}
                for (tenant, session_id), consent in (pin.consents | fresh.consents).items()
            ]
            consents = pa.Table.from_pylist(rows, schema=_CONSENT_CHANGES)
            connection.register("consent_changes", consents)
            connection.execute(relation_sql("event_rows"))
        bind_room_views(sources, views)
        for name in sorted(views):
            sources.create_view(name)
        connection.execute("SET allowed_paths = ?", [sources.paths])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


@contextmanager
def _limits(connection: duckdb.DuckDBPyConnection, room: LakeSettings) -> Iterator[None]:
    """Stops the query in time, and turns the engine's errors into ours."""
    timer = threading.Timer(room.query_seconds_max, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        limit = f"{room.query_seconds_max} s"
        raise QueryLimitReached(limit=limit, setting="PENSTOCK_QUERY_SECONDS_MAX") from None
    except duckdb.OutOfMemoryException:
        limit = f"{room.query_memory_bytes_max} bytes of memory"
        raise QueryLimitReached(limit=limit, setting="PENSTOCK_QUERY_MEMORY_BYTES_MAX") from None
    except (duckdb.Error, pa.ArrowException) as error:
        raise QueryFailed(why=str(error).strip()) from None
    finally:
        timer.cancel()


# The rows of an answer in a format


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python values that JSON can hold."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError) as error:  # infinity, and years before 1 or after 9999
        raise QueryFailed(why=f"a value cannot be shown ({error}); cast it to varchar") from None
    return rows


def encode(value: object) -> bytes:
    """JSON, with what JSON has no form for as text."""
    return _encoder.encode(value)


def write_rows(batches: pa.RecordBatchReader, form: Format, out: BinaryIO) -> int:
    """Write all rows a batch at a time; their number."""
    count = 0
    if form == "json":
        out.write(b"[")
        for batch in batches:
            for row in rows_of(batch):
                out.write(b",\n" if count else b"\n")
                out.write(encode(row))
                count += 1
        out.write(b"\n]\n" if count else b"]\n")
        return count
    schema, portions = batches.schema, iter(batches)
    if form == "csv":
        flat = [(column.name, _flat(pa.array([], column.type)).type) for column in schema]
        schema = pa.schema(flat)
        portions = (
            pa.RecordBatch.from_arrays([_flat(column) for column in batch.columns], schema=schema)
            for batch in batches
        )
        writer: Any = pyarrow.csv.CSVWriter(out, schema)
    elif form == "arrow":
        writer = pa.ipc.new_stream(out, schema)
    else:
        writer = pq.ParquetWriter(out, schema, compression="zstd")
    with writer:
        for portion in portions:
            writer.write_batch(portion)
            count += portion.num_rows
    return count


def _flat(column: pa.Array) -> pa.Array:
    """Nested values as JSON texts: CSV has no form for them."""
    if not (pa.types.is_nested(column.type) or pa.types.is_decimal(column.type)):
        return column
    texts = [value if value is None else encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())
