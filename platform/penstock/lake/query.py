"""Queries by users: read-only SQL over one tenant's rows, with bounds on memory and time.

Two walls: the statement is checked before it runs (`guard`), and the connection that runs it
can open no files but those of the pinned segments.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock.database.engine import Database
from penstock.eventlog import EventLog
from penstock.lake.catalog import ConsentChange, Pin, pinned
from penstock.lake.errors import QueryFailed, QueryLimitReached
from penstock.lake.fresh import NOTHING_FRESH, Fresh, arrivals_of, read_fresh
from penstock.lake.guard import check_query
from penstock.lake.known import KnownEvents
from penstock.lake.pinned_files import PinnedFiles, Tails
from penstock.lake.registered import (
    attempts_at,
    checkpoint_shards,
    checkpoints_at,
    promotions_at,
)
from penstock.lake.reward_files import (
    OUTCOME_FILE_ROWS,
    REWARD_FILE_ROWS,
    outcomes_name,
    rewards_at,
)
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.shards import SAMPLE_ROWS, SHARD_PATHS, shard_files_at, shards_at
from penstock.lake.summary import Summariser
from penstock.lake.summary_schema import SESSION_PARTS
from penstock.settings import Settings
from penstock.storage import ObjectStore

BATCH_ROWS = 10_000
#: A writer is rarely faster than a reader twice.
_PINS_MAX = 5

_VIEWS = files("penstock.lake").joinpath("views")
_BASE = files("penstock.lake").joinpath("base")
#: What users may read, by name.
VIEWS = frozenset(
    entry.name.removesuffix(".sql") for entry in _VIEWS.iterdir() if entry.name.endswith(".sql")
)
#: Views that read summaries and never events, and those that read what was made from them.
_SESSIONS = "sessions"
_REWARDS = frozenset({"rewards", "outcomes"})
_SHARDS = frozenset({"shards", "samples"})
_REGISTRY = frozenset({"checkpoints", "benchmark_scores", "promotions"})
_NO_EVENTS = _REWARDS | _SHARDS | _REGISTRY
_OUTCOMES = OUTCOME_FILE_ROWS.append(pa.field("superseded_at", pa.timestamp("us", tz="UTC")))
_CONSENT_CHANGES = pa.schema([(n, pa.string()) for n in ConsentChange.__dataclass_fields__])


@dataclass(frozen=True)
class OwnQuery:
    """SQL of our own, from a file: it is not checked, and may have parameters. It reads `views`
    alone."""

    sql: str
    views: frozenset[str]
    parameters: Mapping[str, object] = field(default_factory=dict)


def _checked(connection: duckdb.DuckDBPyConnection, sql: str) -> OwnQuery:
    return OwnQuery(sql, check_query(connection, sql, VIEWS))


@dataclass(frozen=True)
class QueryEngine:
    """Runs queries over a lake."""

    settings: Settings
    database: Database
    store: ObjectStore
    log: EventLog | None
    summariser: Summariser
    tails: Tails

    @contextmanager
    def run(
        self, sql: "str | OwnQuery", *, tenant: str, as_of: str | int | None = None
    ) -> Iterator["Answer"]:
        """The answer can be read until the block ends. Raises QueryRefused, QueryFailed,
        QueryLimitReached, SnapshotUnknown, HistoryRemoved."""
        connection = duckdb.connect(":memory:", config=self._configuration())
        try:
            query = sql if isinstance(sql, OwnQuery) else _checked(connection, sql)
            views = query.views
            with ExitStack() as claims:
                pin, fresh = self._pin(claims, as_of, with_fresh=bool(views - _NO_EVENTS))
                files = PinnedFiles(self.store, self.tails)
                with _limits(connection, self.settings), files.telling():
                    self._prepare(connection, files, views, pin=pin, fresh=fresh, tenant=tenant)
                    found = connection.sql(query.sql, params=query.parameters or None)
                    batches = found.to_arrow_reader(BATCH_ROWS)
                    _refuse_names_twice(batches.schema.names)
                    yield Answer(batches, pin.snap, fresh.cut_off)
        finally:
            connection.close()

    def _pin(
        self, claims: ExitStack, as_of: str | int | None, *, with_fresh: bool
    ) -> tuple[Pin, Fresh]:
        """The lake, and what the log holds beyond it, as of one moment."""
        lease_s = max(
            self.settings.room(LakeSettings).reader_lease_seconds,
            self.settings.room(LakeSettings).query_seconds_max,
        )
        for _ in range(_PINS_MAX):
            pin = claims.enter_context(pinned(self.database, as_of, lease_s))
            if as_of not in (None, "latest") or not with_fresh:
                return pin, NOTHING_FRESH
            fresh = self._fresh(pin)
            if not fresh.overtaken:
                return pin, fresh
        return pin, replace(fresh, cut_off=True)

    def _fresh(self, pin: Pin) -> Fresh:
        if self.log is None:
            return NOTHING_FRESH
        known = KnownEvents(
            self.database,
            self.store,
            bytes_max=self.settings.room(LakeSettings).known_bytes_max,
        )
        bytes_max = self.settings.room(LakeSettings).query_memory_bytes_max // 8
        return read_fresh(
            self.log,
            arrivals_of(self.log.partitions, self.settings),
            next_offsets=pin.next_offsets,
            known=known,
            snap=pin.snap,
            bytes_max=bytes_max,
        )

    def _prepare(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: PinnedFiles,
        views: frozenset[str],
        *,
        pin: Pin,
        fresh: Fresh,
        tenant: str,
    ) -> None:
        """Create the views that the query reads, and shut the connection off from all else."""
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET VARIABLE tenant = ?", [tenant])
        paths: list[str] = []
        if _SESSIONS in views:
            sessions = files.bind(connection, [sessions_name(one.name) for one in pin.segments])
            connection.register("fresh_sessions", self.summariser.summarise(fresh.rows))
            paths += _bind(connection, "stored_sessions", sessions, SESSION_PARTS)
            _create_base(connection, "session_parts")
        if views & _REWARDS:
            paths += self._prepare_rewards(connection, files, pin.snap, views)
        if views & _SHARDS:
            paths += self._prepare_shards(connection, files, pin.snap, views, tenant)
        if views & _REGISTRY:
            self._prepare_registry(connection, pin.moment, views, tenant)
        if views - {_SESSIONS} - _NO_EVENTS:
            events = files.bind(connection, [one.name for one in pin.segments])
            connection.register("fresh_events", fresh.rows)
            connection.register("consent_changes", _consent_table(pin, fresh))
            paths += _bind(connection, "stored_events", events, EVENT_ROWS)
            _create_base(connection, "event_rows")
        for name in sorted(views):
            body = _VIEWS.joinpath(f"{name}.sql").read_text(encoding="utf-8")
            connection.execute(f'CREATE VIEW "{name}" AS {body}')
        connection.execute("SET allowed_paths = ?", [paths])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def _prepare_rewards(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: PinnedFiles,
        snap: int,
        views: frozenset[str],
    ) -> list[str]:
        names = [one.name for one in rewards_at(self.database, snap)]
        outcomes = files.bind(connection, [outcomes_name(one) for one in names])
        paths = _bind(connection, "stored_outcomes", outcomes, _OUTCOMES)
        if "rewards" in views:
            rewards = files.bind(connection, names)
            paths = paths + _bind(connection, "stored_rewards", rewards, REWARD_FILE_ROWS)
        return paths

    def _prepare_shards(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: PinnedFiles,
        snap: int,
        views: frozenset[str],
        tenant: str,
    ) -> list[str]:
        if "shards" in views:
            connection.register("shard_list", shards_at(self.database, snap, tenant))
        if "samples" not in views:
            return []
        names = shard_files_at(self.database, snap, tenant)
        paths = files.bind(connection, list(names))
        columns = [paths, list(names.values())]
        connection.register(
            "shard_paths",
            pa.Table.from_arrays(
                [pa.array(column, pa.string()) for column in columns], schema=SHARD_PATHS
            ),
        )
        return _bind(connection, "stored_samples", paths, SAMPLE_ROWS)

    def _prepare_registry(
        self,
        connection: duckdb.DuckDBPyConnection,
        moment: int | None,
        views: frozenset[str],
        tenant: str,
    ) -> None:
        if "checkpoints" in views:
            connection.register("checkpoint_list", checkpoints_at(self.database, moment, tenant))
            connection.register("checkpoint_shards", checkpoint_shards(self.database, tenant))
        if "benchmark_scores" in views:
            connection.register("attempt_list", attempts_at(self.database, moment, tenant))
        if "promotions" in views:
            connection.register("promotion_list", promotions_at(self.database, moment, tenant))

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


@dataclass(frozen=True)
class Answer:
    """Rows in batches, the snap that they are of, and whether the newest events are missing."""

    batches: pa.RecordBatchReader
    snap: int
    cut_off: bool


def _bind(
    connection: duckdb.DuckDBPyConnection, name: str, paths: list[str], schema: pa.Schema
) -> list[str]:
    """A relation of the rows of these files, or of none."""
    if paths:
        connection.execute(f"SET VARIABLE {name}_files = ?", [paths])
        _create_base(connection, name)
    else:
        connection.register(name, schema.empty_table())
    return paths


def _create_base(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.execute(_BASE.joinpath(f"{name}.sql").read_text(encoding="utf-8"))


def _refuse_names_twice(names: list[str]) -> None:
    """Rows are shown by name: one of two equal names would be lost."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise QueryFailed(why=f"two columns are named {twice}; give one of them another name")


def _consent_table(pin: Pin, fresh: Fresh) -> pa.Table:
    """The latest change of each session's consent."""
    changes = {(one.tenant, one.session_id): one for one in (*pin.consents, *fresh.consents)}
    rows = [asdict(one) for one in changes.values()]
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
