"""Queries by users: read-only SQL over one tenant's rows, with limits on memory and time; and their
rows as JSON, CSV, Parquet or an Arrow stream.

Two walls: the statement is checked before it runs (`query_guard`), and the connection that runs it
can open no files but those of the pinned lake.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.lake.catalog import READER_LEASE_SECONDS, Pin, pinned
from penstock.lake.duplicates import KnownEvents
from penstock.lake.errors import QueryFailed
from penstock.lake.fresh_events import NOTHING_FRESH, FreshEvents, arrivals_of, read_fresh
from penstock.lake.pinned_files import PinnedFiles
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.spill import spill_folder
from penstock.lake.statements import LocalStatement, Preparation, StatementLimits, StatementRunner
from penstock.lake.view_sources import (
    LAKE_VIEWS,
    ViewSources,
    bind_room_views,
    relation_sql,
    view_names,
)

if TYPE_CHECKING:  # a lake makes queries
    from penstock.lake.lake import Lake

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
        with ExitStack() as closing:
            limits = self._limits(room, closing)
            statement: StatementRunner
            if lake.statements is None or isinstance(query, OwnQuery):
                statement = LocalStatement(limits)
            else:
                statement = lake.statements.open(limits)
            closing.callback(statement.close)
            if isinstance(query, str):
                query = OwnQuery(query, statement.views(query, view_names()))
            pin, fresh = self._pin(closing, room, with_fresh=bool(query.views & LAKE_VIEWS))
            files = PinnedFiles(lake.store, lake.tails)
            with files.failures_raised():
                preparation = Preparation(files.distant)
                sources = ViewSources(
                    preparation, files, lake.database, self.tenant, pin.snap, pin.moment
                )
                self._prepare(sources, query.views, pin, fresh)
                batches = statement.answer(query.sql, preparation, query.parameters)
                yield Answer(batches, pin.snap, fresh.cut_off)

    def _limits(self, room: LakeSettings, closing: ExitStack) -> StatementLimits:
        """With a folder of its own for what does not fit into memory."""
        spill = closing.enter_context(spill_folder(self.lake.settings.data))
        return StatementLimits(
            seconds=room.query_seconds_max,
            memory_bytes=room.query_memory_bytes_max,
            threads=room.query_threads,
            spill=str(spill),
            spill_bytes=4 * room.query_memory_bytes_max,
        )

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
        """Create the views that the query reads."""
        connection = sources.connection
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
