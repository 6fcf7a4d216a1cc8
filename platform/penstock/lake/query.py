"""Queries by users: read-only SQL over one tenant's rows, with limits on memory and time.

Two walls: the statement is checked before it runs (`query_guard`), and the connection that runs it
can open no files but those of the pinned lake.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from penstock.directories import make_directory
from penstock.errors import LibraryMissing
from penstock.events.event import session_key
from penstock.lake.catalog import READER_LEASE_SECONDS, Pin, Segment, pinned
from penstock.lake.duplicates import KnownEvents
from penstock.lake.fresh_events import NOTHING_FRESH, FreshEvents, arrivals_of, read_fresh
from penstock.lake.pinned_files import PinnedFiles
from penstock.lake.row_formats import AnswerBuffer, WireFormat
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.spill import spill_folder
from penstock.lake.statements import (
    EndSignal,
    LocalStatement,
    Preparation,
    StatementLimits,
    StatementRunner,
)
from penstock.lake.view_sources import (
    LAKE_VIEWS,
    ViewSources,
    bind_room_views,
    relation_sql,
    view_names,
    view_sql,
)

if TYPE_CHECKING:  # a lake makes queries
    import pandas
    import polars

    from penstock.lake.lake import Lake

#: What a statement may spill, in the memory that it may use.
_SPILL_PER_MEMORY = 4
#: How often a query pins the lake anew because the log let go of fresh events meanwhile.
_PINS_MAX = 5
#: The one view that reads summaries of sessions and no events.
_SESSIONS = "sessions"
_CONSENT_CHANGES = pa.schema([(n, pa.string()) for n in ("tenant", "session_id", "consent")])


@dataclass(frozen=True)
class OwnQuery:
    """SQL of our own: it is not checked, may have parameters, and reads no views but `views`, and
    `tables` that it brings along. `variables` are for `getvariable`: they reach a statement that
    runs in another process too. Where `sessions` are named, it asks for events and summaries of
    them alone, and segments that hold none of them are not opened."""

    sql: str
    views: frozenset[str]
    parameters: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    #: By name. Millions of names are a table, as parameters they would be objects of Python.
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    #: What has no room in so much memory is on disk; never more than the settings allow.
    memory_bytes_max: int | None = None
    sessions: Collection[str] | None = None
    #: Views of which it reads what lies below alone, such as `session_parts`: to create a view
    #: costs what planning a statement over it does.
    below: frozenset[str] = frozenset()
    #: Statements that have answers of their own, by the same engine: `tables` gives all.
    others: tuple[str, ...] = ()
    #: Tables that are made first, by name and SQL.
    made: Mapping[str, str] = field(default_factory=dict)
    #: Variables that are worked out behind these tables, by name and SQL.
    assigned: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> frozenset[str]:
        return self.views | self.below


@dataclass(frozen=True)
class Answer:
    """Rows in batches, the snap that they are of, and whether the newest events are missing."""

    batches: pa.RecordBatchReader
    snap: int
    cut_off: bool


@dataclass(frozen=True)
class WrittenAnswer:
    """The snap that the rows are of, and whether the newest events are missing."""

    snap: int
    cut_off: bool


@dataclass(frozen=True)
class _PreparedQuery:
    query: OwnQuery
    preparation: Preparation
    pin: Pin
    cut_off: bool


class QueryRows:
    """The rows of a query, in the form that is asked for. The query runs each time."""

    def run(self) -> AbstractContextManager[Answer]:
        """The answer with what is known of it, readable until the block ends. Raises QueryRefused,
        QueryFailed, QueryLimitReached, SnapshotUnknown, HistoryRemoved."""
        raise NotImplementedError

    def arrow(self) -> pa.Table:
        """The rows as a table of Arrow."""
        with self.run() as answer:
            return answer.batches.read_all()

    def df(self) -> "pandas.DataFrame":
        """The rows as a data frame of pandas. Raises LibraryMissing."""
        _library("pandas", "df()")
        return self.arrow().to_pandas()

    def pl(self) -> "polars.DataFrame":
        """The rows as a data frame of polars. Raises LibraryMissing."""
        polars = _library("polars", "pl()")
        return polars.from_arrow(self.arrow())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time: memory stays bounded whatever their number."""
        with self.run() as answer:
            yield from answer.batches


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise LibraryMissing(what=what, library=name) from error


@dataclass(frozen=True)
class LakeQuery(QueryRows):
    """A query of a lake: `arrow()`, `df()`, `pl()` or `batches()` gives its rows."""

    lake: "Lake"
    sql: str | OwnQuery
    as_of: str | int | None
    tenant: str
    #: Whether the view `sessions` is merged in pieces, of which each has the time of a query.
    in_pieces: bool = False

    @contextmanager
    def run(self) -> Iterator[Answer]:
        """The statement runs in this process."""
        with ExitStack() as closing:
            limits = self._limits(closing)
            statement = LocalStatement(limits)
            closing.callback(statement.close)
            prepared = self._prepared(statement, closing, limits)
            query = prepared.query
            batches = statement.answer(query.sql, prepared.preparation, query.parameters)
            yield Answer(batches, prepared.pin.snap, prepared.cut_off)

    def write(self, form: WireFormat, out: BinaryIO, end: EndSignal) -> WrittenAnswer:
        """Write the answer; where the lake has processes for statements, from one of them, which
        `end` ends. Raises what `run` does, also in the middle of the rows."""
        with ExitStack() as closing:
            limits = self._limits(closing)
            statement: StatementRunner
            if self.lake.statements is None:
                statement = LocalStatement(limits)
            else:
                statement = self.lake.statements.open(limits)
            closing.callback(statement.close)
            closing.enter_context(end.ending(statement))
            prepared = self._prepared(statement, closing, limits)
            query, preparation = prepared.query, prepared.preparation
            sqls = [query.sql, *query.others]
            if isinstance(self.sql, OwnQuery):
                sqls = [_made_whole(preparation, number, sql) for number, sql in enumerate(sqls)]
            statement.write(sqls, preparation, form, out)
            return WrittenAnswer(prepared.pin.snap, prepared.cut_off)

    def table(self) -> pa.Table:
        """All rows, from wherever statements of users run, within the limit of an answer. Raises
        what `write` does."""
        return self.table_at()[0]

    def tables(self) -> list[pa.Table]:
        """Of a query of our own with several statements the rows of each."""
        return self._tables_at()[0]

    def table_at(self) -> tuple[pa.Table, WrittenAnswer]:
        """The same as `table`, with what is known of the answer."""
        [table], written = self._tables_at()
        return table, written

    def _tables_at(self) -> tuple[list[pa.Table], WrittenAnswer]:
        bytes_max = self.lake.settings.room(LakeSettings).query_answer_bytes_max
        with AnswerBuffer(bytes_max) as out:
            written = self.write("arrow", out, EndSignal())
            answers, tables = pa.BufferReader(out.getvalue()), []
            while answers.tell() < answers.size():
                tables.append(pa.ipc.open_stream(answers).read_all())
            return tables, written

    def _prepared(
        self, statement: StatementRunner, closing: ExitStack, limits: StatementLimits
    ) -> "_PreparedQuery":
        lake, query = self.lake, self.sql
        if isinstance(query, str):
            query = OwnQuery(query, statement.views(query, view_names()))
        room = lake.settings.room(LakeSettings)
        with_fresh = bool(query.bound & LAKE_VIEWS)
        pin, fresh = self._pin(closing, room, limits.seconds, with_fresh=with_fresh)
        files = PinnedFiles(lake.store, lake.tails)
        closing.enter_context(files.failures_raised())
        preparation = Preparation(files.distant)
        place = self.tenant, pin.snap, pin.moment
        sources = ViewSources(preparation, files, lake.database, *place)
        self._prepare(sources, query, pin, fresh, limits)
        for name, table in query.tables.items():
            preparation.register(name, table)
        for name, value in query.variables.items():
            preparation.execute(f"SET VARIABLE {name} = ?", [value])
        for name, sql in query.made.items():
            preparation.execute(f"CREATE TABLE {name} AS {sql}")
        for name, sql in query.assigned.items():
            preparation.execute(f"SET VARIABLE {name} = ({sql})")
        return _PreparedQuery(query, preparation, pin, fresh.cut_off)

    def _limits(self, closing: ExitStack) -> StatementLimits:
        """With a folder of its own for what does not fit into memory."""
        room = self.lake.settings.room(LakeSettings)
        memory_bytes = room.query_memory_bytes_max
        if isinstance(self.sql, OwnQuery) and self.sql.memory_bytes_max is not None:
            memory_bytes = min(memory_bytes, self.sql.memory_bytes_max)
        data = Path(self.lake.settings.data)
        spill = closing.enter_context(spill_folder(data))
        pieces = self._pieces(memory_bytes) if self.in_pieces else 1
        # All queries together leave half of what is free to the log and the lake.
        share = _free_bytes(data) // (2 * room.queries_max)
        return StatementLimits(
            seconds=pieces * room.query_seconds_max,
            memory_bytes=memory_bytes,
            threads=room.query_threads,
            spill=str(spill),
            spill_bytes=min(_SPILL_PER_MEMORY * room.query_memory_bytes_max, share),
            spill_bytes_per_second=room.query_spill_bytes_per_second,
            lake=self.lake.store.address("") if self.lake.store.local else None,
        )

    def _pin(
        self, claims: ExitStack, room: LakeSettings, seconds: float, *, with_fresh: bool
    ) -> tuple[Pin, FreshEvents]:
        """The lake, and what the log holds beyond it, as of one moment."""
        lake = self.lake
        lease_s = max(READER_LEASE_SECONDS, seconds)
        before: object = None
        for _ in range(_PINS_MAX):
            pin = claims.enter_context(
                pinned(lake.database, self.as_of, lease_s, tenant=self.tenant)
            )
            if self.as_of not in (None, "latest") or not with_fresh:
                return pin, NOTHING_FRESH
            lake.log.refresh()
            fresh = read_fresh(
                lake,
                arrivals_of(lake),
                next_offsets=pin.next_offsets,
                known=KnownEvents(lake.database, lake.store, bytes_max=room.known_bytes_max),
                snap=pin.snap,
                tenant=self.tenant,
                bytes_max=room.query_memory_bytes_max // 8,
            )
            # Where the lake covers no more than before, the log let go of nothing but what it
            # covers: an erasure leaves such a log.
            if not fresh.overtaken or pin.next_offsets == before:
                return pin, fresh
            before = pin.next_offsets
        return pin, replace(fresh, cut_off=True)

    def _pieces(self, memory_bytes: int) -> int:
        return pieces_of(self.lake.session_filters.count(), memory_bytes)

    def _segments(self, query: OwnQuery, pin: Pin) -> Sequence[Segment]:
        if query.sessions is None:
            return pin.segments
        keys = [session_key(self.tenant, session) for session in query.sessions]
        return self.lake.session_filters.holding(pin.segments, keys)

    def _prepare(
        self,
        sources: ViewSources,
        query: OwnQuery,
        pin: Pin,
        fresh: FreshEvents,
        limits: StatementLimits,
    ) -> None:
        """Create the views that the query reads."""
        views, segments = query.bound, self._segments(query, pin)
        connection = sources.connection
        connection.execute("SET VARIABLE tenant = ?", [sources.tenant])
        fresh_rows, changes = _asked_about(query, fresh, pin.consents | fresh.consents)
        if _SESSIONS in views:
            names = [sessions_name(segment.name) for segment in segments]
            sources.bind_files("stored_sessions", names, SESSION_PARTS)
            if fresh_rows:
                summaries = self.lake.summariser.summarise(fresh_rows)
                connection.register("fresh_sessions", summaries)
            relation = "session_parts" if fresh_rows else "stored_session_parts"
            connection.execute(relation_sql(relation))
            if self.in_pieces:
                create_in_pieces(sources, self._pieces(limits.memory_bytes), limits.spill)
        if views & LAKE_VIEWS - {_SESSIONS}:
            names = [segment.name for segment in segments]
            sources.bind_files("stored_events", names, EVENT_ROWS)
            if fresh_rows or changes:
                connection.register("fresh_events", fresh_rows)
                consents = pa.Table.from_pylist(changes, schema=_CONSENT_CHANGES)
                connection.register("consent_changes", consents)
            relation = "event_rows" if fresh_rows or changes else "stored_event_rows"
            connection.execute(relation_sql(relation))
        bind_room_views(sources, views)
        for name in sorted(query.views):
            sources.create_view(name)


def _asked_about(
    query: OwnQuery, fresh: FreshEvents, consents: Mapping[tuple[str, str], str]
) -> tuple[pa.Table, list[dict[str, str]]]:
    """The fresh events, none where none is of the query's sessions; and the changes of consent
    that it may see."""
    rows, sessions = fresh.rows, None if query.sessions is None else set(query.sessions)
    if sessions is not None and sessions.isdisjoint(rows["session_id"].unique().to_pylist()):
        rows = rows.slice(0, 0)
    changes = [
        {"tenant": tenant, "session_id": session, "consent": consent}
        for (tenant, session), consent in consents.items()
        if sessions is None or session in sessions
    ]
    return rows, changes


def _made_whole(preparation: Preparation, number: int, sql: str) -> str:
    """The statement that reads the answer of this one from a table. An answer that is read as it
    is found is planned twice: once for its columns."""
    preparation.execute(f"CREATE TABLE answer_{number} AS {sql}")
    return f"FROM answer_{number}"


def _free_bytes(folder: Path) -> int:
    """On the disk where the folder is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return disk_usage(folder).free


# The view of sessions in pieces, where it has no room in memory

#: Merging takes up to 1 KiB for each, and the engine holds more at the same time.
_BYTES_PER_SESSION = 4096
#: Out of so many names the bounds of the pieces are taken.
_SAMPLED = 10_000
_CUTS = f"""
SET VARIABLE session_cuts = (
    SELECT list(session_id ORDER BY session_id)
    FROM (SELECT session_id FROM session_parts USING SAMPLE {_SAMPLED} ROWS)
)
"""


def pieces_of(parts: int, memory_bytes: int) -> int:
    """Into how many pieces summaries in so many parts are divided."""
    return 1 + parts // max(1, memory_bytes // _BYTES_PER_SESSION)


def create_in_pieces(sources: ViewSources, pieces: int, folder: str) -> None:
    """Create the view `sessions` over `session_parts`."""
    make_directory(Path(folder))
    sources.connection.execute(_CUTS)
    paths = [_merge(sources.connection, piece, pieces, folder) for piece in range(pieces)]
    sources.connection.paths += paths
    sources.connection.execute("SET VARIABLE session_pieces = ?", [paths])
    sources.create_view("sessions", "SELECT * FROM read_parquet(getvariable('session_pieces'))")


def _merge(connection: Preparation, piece: int, pieces: int, folder: str) -> str:
    """Bounds may be equal: the pieces between them are empty."""
    path = str(Path(folder, f"sessions-{piece:04}.parquet"))
    bounds = ["true"]
    bounds += [f"session_id > {_cut(piece, pieces)}"] if piece else []
    bounds += [f"session_id <= {_cut(piece + 1, pieces)}"] if piece + 1 < pieces else []
    rows = f"SELECT * FROM (\n{view_sql('sessions')}\n) WHERE {' AND '.join(bounds)}"
    quoted = path.replace("'", "''")
    connection.execute(f"COPY ({rows}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
    return path


def _cut(number: int, pieces: int) -> str:
    cuts = "getvariable('session_cuts')"
    return f"{cuts}[len({cuts}) * {number} // {pieces} + 1]"
