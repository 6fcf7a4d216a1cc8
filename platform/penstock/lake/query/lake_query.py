"""Queries: read-only SQL over one tenant's rows, with limits on memory and time.

Two walls protect other tenants. `guard` checks a user's statement before it runs, and the
connection can open no files but the pinned ones of the lake.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa

from penstock.core.endpoint import Answer
from penstock.core.errors import LibraryMissing
from penstock.core.fairness import crowded
from penstock.core.files import make_directory
from penstock.core.notebook import ROWS_MAX, table_html
from penstock.events.event import session_key
from penstock.lake import LakeSettings
from penstock.lake.catalog import READER_LEASE_SECONDS, Pin, pinned
from penstock.lake.lake_parts import LakeParts
from penstock.lake.query.fresh_events import NOTHING_FRESH, FreshEvents, read_fresh
from penstock.lake.query.pinned_files import PinnedFiles
from penstock.lake.query.row_formats import AnswerBuffer, WireFormat
from penstock.lake.query.spill import spill_folder
from penstock.lake.query.statements import (
    EndSignal,
    LocalStatement,
    Preparation,
    StatementLimits,
    StatementRunner,
)
from penstock.lake.query.view_sources import (
    LAKE_VIEWS,
    ViewSources,
    bind_room_views,
    relation_sql,
    view_names,
    view_sql,
)
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS, read_summaries, sessions_name

if TYPE_CHECKING:  # a lake makes queries
    import pandas
    import polars


#: A statement beyond the slots has this part of the memory of others.
_CROWDED_SHARE = 8
#: How many times its memory a statement may spill.
_SPILL_PER_MEMORY = 4
#: How often a query pins the lake anew because the log removed fresh events meanwhile.
_PINS_MAX = 5
#: This view alone reads summaries and no events.
_SESSIONS = "sessions"
_CONSENT_CHANGES = pa.schema([(n, pa.string()) for n in ("tenant", "session_id", "consent")])


@dataclass(frozen=True)
class OwnQuery:
    """SQL of our own, which is not checked. With `sessions`, segments without them are not
    opened."""

    sql: str
    views: frozenset[str]
    parameters: Mapping[str, object] = field(default_factory=dict)
    #: For `getvariable`, in whatever process the statement runs.
    variables: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    #: Never more than the settings allow; the rest is on disk.
    memory_bytes_max: int | None = None
    sessions: Collection[str] | None = None
    #: Views whose base relations alone are read, such as `session_parts`: creating a view costs as
    #: much as planning a statement over it.
    below: frozenset[str] = frozenset()
    #: Statements that have answers of their own.
    others: tuple[str, ...] = ()
    #: Tables that are made first, and variables that are computed next, by name and SQL.
    made: Mapping[str, str] = field(default_factory=dict)
    assigned: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> frozenset[str]:
        return self.views | self.below


class WrittenAnswer(NamedTuple):
    snap: int
    #: Whether the newest events are missing.
    cut_off: bool


class QueryRows:
    """The rows of a query, in several forms. The query runs each time."""

    def run(self) -> AbstractContextManager[Answer]:
        """Run the query; the answer is readable until the block ends. Raises QueryRefused,
        QueryFailed, QueryLimitReached, SnapshotUnknown, HistoryRemoved."""
        raise NotImplementedError

    def arrow(self) -> pa.Table:
        """Read the rows as a table of Arrow."""
        with self.run() as answer:
            return answer.batches.read_all()

    def df(self) -> "pandas.DataFrame":
        """Read the rows as a data frame of pandas. Raises LibraryMissing."""
        _library("pandas", "df()")
        return self.arrow().to_pandas()

    def pl(self) -> "polars.DataFrame":
        """Read the rows as a data frame of polars. Raises LibraryMissing."""
        polars = _library("polars", "pl()")
        return polars.from_arrow(self.arrow())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows a batch at a time, in bounded memory."""
        with self.run() as answer:
            yield from answer.batches

    def _repr_html_(self) -> str:
        """The first rows, for a notebook."""
        rows: list[Sequence[object]] = []
        with self.run() as answer:
            names = answer.batches.schema.names
            for batch in answer.batches:
                some = batch.slice(0, ROWS_MAX + 1 - len(rows))
                rows += zip(*(column.to_pylist() for column in some.columns), strict=True)
                if len(rows) > ROWS_MAX:
                    break
        note = f"The first {ROWS_MAX} rows." if len(rows) > ROWS_MAX else ""
        return table_html(names, rows[:ROWS_MAX], note)

    def __dir__(self) -> list[str]:
        return ["arrow", "batches", "df", "pl"]


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise LibraryMissing(what=what, library=name) from error


@dataclass(frozen=True)
class LakeQuery(QueryRows):
    """A query of a lake. `arrow()`, `df()`, `pl()` or `batches()` returns its rows."""

    lake: LakeParts
    sql: str | OwnQuery
    as_of: str | int | None
    tenant: str
    #: Whether the view `sessions` is merged in pieces, each with the time of a query.
    in_pieces: bool = False

    @contextmanager
    def run(self) -> Iterator[Answer]:
        """Run the statement in this process."""
        with ExitStack() as closing:
            limits = self._limits(closing)
            statement = LocalStatement(limits)
            closing.callback(statement.close)
            query, preparation, answered = self._prepared(statement, closing, limits)
            batches = statement.answer(query.sql, preparation, query.parameters)
            yield Answer(batches, *answered)

    def write(self, form: WireFormat, out: BinaryIO, end: EndSignal) -> WrittenAnswer:
        """Write the answer, until `end`. The statement runs in a process for statements if the lake
        has them. Raises what `run` does, also in the middle of the rows."""
        with ExitStack() as closing:
            limits = self._limits(closing)
            processes = self.lake.statements
            statement: StatementRunner
            statement = LocalStatement(limits) if processes is None else processes.open(limits)
            closing.callback(statement.close)
            closing.enter_context(end.ending(statement))
            query, preparation, answered = self._prepared(statement, closing, limits)
            sqls = [query.sql, *query.others]
            if isinstance(self.sql, OwnQuery):
                sqls = [_made_whole(preparation, number, sql) for number, sql in enumerate(sqls)]
            statement.write(sqls, preparation, form, out)
            return answered

    def table(self) -> pa.Table:
        """Read the rows, within the limit of an answer. Raises what `write` does."""
        [table] = self.tables()
        return table

    def tables(self) -> list[pa.Table]:
        """Read the rows of each statement of an OwnQuery."""
        answers, tables = pa.BufferReader(self.written("arrow")[0]), []
        while answers.tell() < answers.size():
            tables.append(pa.ipc.open_stream(answers).read_all())
        return tables

    def written(self, form: WireFormat) -> tuple[bytes, WrittenAnswer]:
        """The answer in a form, within the limit of an answer. Raises what `write` does."""
        with AnswerBuffer(self.lake.settings.room(LakeSettings).query_answer_bytes_max) as out:
            answer = self.write(form, out, EndSignal())
            return out.getvalue(), answer

    def _prepared(
        self, statement: StatementRunner, closing: ExitStack, limits: StatementLimits
    ) -> tuple[OwnQuery, Preparation, WrittenAnswer]:
        lake, query = self.lake, self.sql
        if isinstance(query, str):
            query = OwnQuery(query, statement.views(query, view_names()))
        with_fresh = bool(query.bound & LAKE_VIEWS)
        pin, fresh = self._pin(closing, limits.seconds, with_fresh=with_fresh)
        files = PinnedFiles(lake.store, lake.tails)
        closing.enter_context(files.failures_raised())
        preparation = Preparation(files.distant)
        place = self.tenant, pin.snap, pin.moment
        sources = ViewSources(preparation, files, lake.database, *place)
        self._create_views(sources, query, pin, fresh, limits)
        for name, table in query.tables.items():
            preparation.register(name, table)
        for name, value in query.variables.items():
            preparation.execute(f"SET VARIABLE {name} = ?", [value])
        for name, sql in query.made.items():
            preparation.execute(f"CREATE TABLE {name} AS {sql}")
        for name, sql in query.assigned.items():
            preparation.execute(f"SET VARIABLE {name} = ({sql})")
        return query, preparation, WrittenAnswer(pin.snap, fresh.cut_off)

    def _limits(self, closing: ExitStack) -> StatementLimits:
        room = self.lake.settings.room(LakeSettings)
        memory_bytes = room.query_memory_bytes_max // (_CROWDED_SHARE if crowded.get() else 1)
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
        self, claims: ExitStack, seconds: float, *, with_fresh: bool
    ) -> tuple[Pin, FreshEvents]:
        """Pin the lake, and read the log beyond it, as of one moment."""
        lake = self.lake
        lease_s = max(READER_LEASE_SECONDS, seconds)
        bytes_max = lake.settings.room(LakeSettings).query_memory_bytes_max // 8
        before: object = None
        for _ in range(_PINS_MAX):
            pin = claims.enter_context(
                pinned(lake.database, self.as_of, lease_s, tenant=self.tenant)
            )
            if self.as_of not in (None, "latest") or not with_fresh:
                return pin, NOTHING_FRESH
            lake.log.refresh()
            fresh = read_fresh(lake, pin, self.tenant, bytes_max)
            # If the lake covers no more than before, the log removed nothing that it covers: an
            # erasure leaves such a log.
            if not fresh.overtaken or pin.next_offsets == before:
                return pin, fresh
            before = pin.next_offsets
        return pin, replace(fresh, cut_off=True)

    def _pieces(self, memory_bytes: int) -> int:
        return pieces_of(self.lake.session_filters.count(), memory_bytes)

    def _create_views(
        self,
        sources: ViewSources,
        query: OwnQuery,
        pin: Pin,
        fresh: FreshEvents,
        limits: StatementLimits,
    ) -> None:
        views, connection, segments = query.bound, sources.connection, list(pin.segments)
        if query.sessions is not None:
            keys = [session_key(self.tenant, session) for session in query.sessions]
            segments = self.lake.session_filters.holding(segments, keys)
        names = [segment.name for segment in segments]
        connection.execute("SET VARIABLE tenant = ?", [sources.tenant])
        fresh_rows, changes = _asked_about(query, fresh, pin.consents | fresh.consents)
        if _SESSIONS in views:
            beside = [sessions_name(stored.name) for stored in segments if stored.summarised]
            sources.bind_files("stored_sessions", beside, SESSION_PARTS)
            new = [stored.name for stored in segments if not stored.summarised]
            parts = [read_summaries(self.lake.store, name) for name in new]
            if fresh_rows:
                parts.append(self.lake.summariser.summarise(fresh_rows))
            if parts:
                connection.register("fresh_sessions", pa.concat_tables(parts))
            relation = "session_parts" if parts else "stored_session_parts"
            connection.execute(relation_sql(relation))
            if self.in_pieces:
                create_in_pieces(sources, self._pieces(limits.memory_bytes), limits.spill)
        if views & LAKE_VIEWS - {_SESSIONS}:
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
    """Choose the fresh events, if any is of the query's sessions, and the changes of consent."""
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
    """Read the answer from a table. A statement would be planned twice, once for its columns."""
    preparation.execute(f"CREATE TABLE answer_{number} AS {sql}")
    return f"FROM answer_{number}"


def _free_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return disk_usage(folder).free


# The view of sessions in pieces, where it has no room in memory

_BYTES_PER_SESSION = 4096
_SAMPLED = 10_000
_CUTS = f"""
SET VARIABLE session_cuts = (
    SELECT list(session_id ORDER BY session_id)
    FROM (SELECT session_id FROM session_parts USING SAMPLE {_SAMPLED} ROWS)
)
"""


def pieces_of(parts: int, memory_bytes: int) -> int:
    return 1 + parts // max(1, memory_bytes // _BYTES_PER_SESSION)


def create_in_pieces(sources: ViewSources, pieces: int, folder: str) -> None:
    make_directory(Path(folder))
    sources.connection.execute(_CUTS)
    paths = [_merge(sources.connection, piece, pieces, folder) for piece in range(pieces)]
    sources.connection.paths += paths
    sources.connection.execute("SET VARIABLE session_pieces = ?", [paths])
    sources.create_view("sessions", "SELECT * FROM read_parquet(getvariable('session_pieces'))")


def _merge(connection: Preparation, piece: int, pieces: int, folder: str) -> str:
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
