"""Queries by users: read-only SQL over one tenant's rows, with limits on memory and time.

Two walls: the statement is checked before it runs (`query_guard`), and the connection that runs it
can open no files but those of the pinned lake.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock.database.engine import Database
from penstock.eventlog import EventLog
from penstock.lake.catalog import READER_LEASE_SECONDS, ConsentChange, Pin, pinned
from penstock.lake.duplicates import KnownEvents
from penstock.lake.errors import QueryFailed, QueryLimitReached
from penstock.lake.fresh_events import NOTHING_FRESH, FreshEvents, arrivals_of, read_fresh
from penstock.lake.pinned_files import FileTails, PinnedFiles
from penstock.lake.query_guard import check_query
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS, Summariser, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.views import LAKE_VIEWS, ViewSources, bind_room_views, relation_sql, view_names
from penstock.settings import Settings
from penstock.storage import ObjectStore

BATCH_ROWS = 10_000
#: How often a query pins the lake anew because the log let go of fresh events meanwhile.
_PINS_MAX = 5
#: The one view that reads summaries of sessions and no events.
_SESSIONS = "sessions"
_CONSENT_CHANGES = pa.schema([(n, pa.string()) for n in ConsentChange.__dataclass_fields__])


@dataclass(frozen=True)
class OwnQuery:
    """SQL of our own, from a file: it is not checked, and may have parameters. It reads no views
    but `views`."""

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
class QueryEngine:
    """Runs queries over a lake."""

    settings: Settings
    database: Database
    store: ObjectStore
    log: EventLog | None
    summariser: Summariser
    tails: FileTails

    @contextmanager
    def run(
        self, sql: str | OwnQuery, *, tenant: str, as_of: str | int | None = None
    ) -> Iterator[Answer]:
        """The answer can be read until the block ends. Raises QueryRefused, QueryFailed,
        QueryLimitReached, SnapshotUnknown, HistoryRemoved."""
        connection = duckdb.connect(":memory:", config=self._configuration())
        try:
            if isinstance(sql, OwnQuery):
                query = sql
            else:
                query = OwnQuery(sql, check_query(connection, sql, view_names()))
            with ExitStack() as claims:
                with_fresh = bool(query.views & LAKE_VIEWS)
                pin, fresh = self._pin(claims, as_of, with_fresh=with_fresh)
                files = PinnedFiles(self.store, self.tails)
                sources = ViewSources(
                    connection, files, self.database, tenant, pin.snap, pin.moment
                )
                with _limits(connection, self.settings), files.failures_raised():
                    self._prepare(sources, query.views, pin, fresh)
                    result = connection.sql(query.sql, params=query.parameters or None)
                    batches = result.to_arrow_reader(BATCH_ROWS)
                    _refuse_equal_names(batches.schema.names)
                    yield Answer(batches, pin.snap, fresh.cut_off)
        finally:
            connection.close()

    def _pin(
        self, claims: ExitStack, as_of: str | int | None, *, with_fresh: bool
    ) -> tuple[Pin, FreshEvents]:
        """The lake, and what the log holds beyond it, as of one moment."""
        lease_s = max(
            READER_LEASE_SECONDS,
            self.settings.room(LakeSettings).query_seconds_max,
        )
        for _ in range(_PINS_MAX):
            pin = claims.enter_context(pinned(self.database, as_of, lease_s))
            if as_of not in (None, "latest") or not with_fresh or self.log is None:
                return pin, NOTHING_FRESH
            fresh = read_fresh(
                self.log,
                arrivals_of(self.log.partitions, self.settings),
                next_offsets=pin.next_offsets,
                known=KnownEvents(
                    self.database,
                    self.store,
                    bytes_max=self.settings.room(LakeSettings).known_bytes_max,
                ),
                snap=pin.snap,
                bytes_max=self.settings.room(LakeSettings).query_memory_bytes_max // 8,
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
            connection.register("fresh_sessions", self.summariser.summarise(fresh.rows))
            connection.execute(relation_sql("session_parts"))
        if views & LAKE_VIEWS - {_SESSIONS}:
            names = [segment.name for segment in pin.segments]
            sources.bind_files("stored_events", names, EVENT_ROWS)
            connection.register("fresh_events", fresh.rows)
            connection.register("consent_changes", _consent_table(pin, fresh))
            connection.execute(relation_sql("event_rows"))
        bind_room_views(sources, views)
        for name in sorted(views):
            sources.create_view(name)
        connection.execute("SET allowed_paths = ?", [sources.paths])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def _configuration(self) -> dict[str, str | bool | int | float | list[str]]:
        spill = Path(self.settings.data) / "tmp"
        room = self.settings.room(LakeSettings)
        memory_bytes = room.query_memory_bytes_max
        return {
            "threads": room.query_threads,
            "memory_limit": f"{memory_bytes // 1024}KiB",
            "temp_directory": str(spill),
            "max_temp_directory_size": f"{4 * memory_bytes // 1024}KiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }


def _refuse_equal_names(names: list[str]) -> None:
    """Rows are shown by name: one of two equal names would be lost."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise QueryFailed(why=f"two columns are named {twice}; give one of them another name")


def _consent_table(pin: Pin, fresh: FreshEvents) -> pa.Table:
    """The latest change of each session's consent."""
    changes = {(c.tenant, c.session_id): c for c in (*pin.consents, *fresh.consents)}
    rows = [asdict(change) for change in changes.values()]
    return pa.Table.from_pylist(rows, schema=_CONSENT_CHANGES)


@contextmanager
def _limits(connection: duckdb.DuckDBPyConnection, settings: Settings) -> Iterator[None]:
    """Stops the query in time, and turns the engine's errors into ours."""
    seconds, memory = (
        settings.room(LakeSettings).query_seconds_max,
        settings.room(LakeSettings).query_memory_bytes_max,
    )
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        raise QueryLimitReached(
            limit=f"{seconds} s", setting="PENSTOCK_QUERY_SECONDS_MAX"
        ) from None
    except duckdb.OutOfMemoryException:
        raise QueryLimitReached(
            limit=f"{memory} bytes of memory", setting="PENSTOCK_QUERY_MEMORY_BYTES_MAX"
        ) from None
    except (duckdb.Error, pa.ArrowException) as error:
        raise QueryFailed(why=str(error).strip()) from None
    finally:
        timer.cancel()
