"""Running a statement: the data that it may read is prepared first, and the engine gets nothing
else.

Commands run it in their own process. The server has processes for it (`statement_processes`), since
some statements end the engine or cannot be interrupted.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import duckdb
import pyarrow as pa

from penstock.backends.terminal.interruption import interrupted_by_ctrl_c
from penstock.core.errors import PenstockError
from penstock.lake import QueryFailed, QueryLimitReached
from penstock.lake.query.guard import check_query
from penstock.lake.query.pinned_files import DistantFile, make_filesystem
from penstock.lake.query.row_formats import WireFormat, write_rows

BATCH_ROWS = 10_000
_JOINED_VALUES_MAX = 1_000
#: Concurrent reads of a remote store; reads of a disk need no threads.
_DISTANT_READS = 8
_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    # A process is confined thread by thread: the others start later, in `answer`.
    "threads": 1,
    "async_threads": 0,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
MEMORY_SETTING = "PENSTOCK_QUERY_MEMORY_BYTES_MAX"
ENGINE_FAILED = "the query engine failed inside; write it differently"


@dataclass(frozen=True)
class StatementLimits:
    seconds: float
    memory_bytes: int
    threads: int
    #: The folder for what does not fit into memory, how much it may hold, and how fast a process
    #: may fill it; 0 is no limit.
    spill: str
    spill_bytes: int
    spill_bytes_per_second: int = 0
    #: The folder of all files of the lake; None where they are in another store.
    lake: str | None = None
    #: Where the engine does not end a statement at its limit, its process ends so much later.
    grace_seconds: float = 0.5


def open_engine() -> duckdb.DuckDBPyConnection:
    """Open an engine without threads, so that the process can fork."""
    return duckdb.connect(":memory:", config=_CONFIGURATION)


@dataclass
class Preparation:
    """The preparation of a connection for a statement: tables and statements of our own, in order,
    and the only files that it may open."""

    #: Files in a remote store.
    distant: Mapping[str, DistantFile] = field(default_factory=dict)
    steps: list[tuple[str, pa.Table | Sequence[str | Sequence[str]]]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def register(self, name: str, table: pa.Table) -> None:
        self.steps.append((name, table))

    def execute(self, sql: str, parameters: Sequence[str | Sequence[str]] = ()) -> None:
        self.steps.append((sql, parameters))

    def apply(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do the steps. Call `shut` before a user's statement."""
        if self.distant:
            connection.register_filesystem(make_filesystem(self.distant))
        connection.execute("SET TimeZone = 'UTC'")
        # Each reference to a view opens its files anew.
        connection.execute("SET parquet_metadata_cache = true")
        # Where a join keeps so few sessions, other row groups of its other side are not read.
        connection.execute(f"SET dynamic_or_filter_threshold = {_JOINED_VALUES_MAX}")
        for text, content in self.steps:
            if isinstance(content, pa.Table):
                connection.register(text, content)
            else:
                connection.execute(text, list(content))

    def shut(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SET allowed_paths = ?", [self.paths])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


class StatementRunner(Protocol):
    def views(self, sql: str, names: frozenset[str]) -> frozenset[str]:
        """Find which of these views a statement reads. Raises QueryRefused."""
        ...

    def write(
        self, sqls: Sequence[str], preparation: Preparation, form: WireFormat, out: BinaryIO
    ) -> None:
        """Write the answers one behind the other. Raises QueryFailed and QueryLimitReached, also
        in the middle of the rows."""
        ...

    def end(self) -> None:
        """End the statement, from another thread: nobody wants the rows any more."""
        ...

    def close(self) -> None: ...


class EndSignal:
    """Ends a statement that runs, or will run, on another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statement: StatementRunner | None = None
        self._sent = False

    def send(self) -> None:
        with self._lock:
            self._sent = True
            if self._statement is not None:
                self._statement.end()

    @contextmanager
    def ending(self, statement: StatementRunner) -> Iterator[None]:
        with self._lock:
            self._statement = statement
            if self._sent:
                statement.end()
        try:
            yield
        finally:
            with self._lock:
                self._statement = None


class LocalStatement:
    def __init__(
        self, limits: StatementLimits, connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        """Limit a connection of `open_engine` that nobody else uses."""
        self.limits = limits
        self.connection = connection or open_engine()
        self._limit("memory_limit", f"{limits.memory_bytes // 1024}KiB")
        self._limit("temp_directory", limits.spill)
        self._limit("max_temp_directory_size", f"{limits.spill_bytes // 1024}KiB")
        self._timer = threading.Timer(limits.seconds, self.connection.interrupt)
        self._timer.daemon = True
        self._ending = ExitStack()
        self._ending.enter_context(interrupted_by_ctrl_c(self.end))

    def _limit(self, name: str, value: str) -> None:
        self.connection.execute(f"SET {name} = ?", [value])

    def views(self, sql: str, names: frozenset[str]) -> frozenset[str]:
        return check_query(self.connection, sql, names)

    def answer(
        self, sql: str, preparation: Preparation, parameters: Mapping[str, object]
    ) -> pa.RecordBatchReader:
        """Run a statement. Raises QueryFailed and QueryLimitReached, also while rows are read."""
        self._timer.start()
        with self._errors():
            self.connection.execute(f"SET threads = {self.limits.threads}")
            if preparation.distant:
                self.connection.execute(f"SET async_threads = {_DISTANT_READS}")
            preparation.apply(self.connection)
            preparation.shut(self.connection)
        return self._rows(sql, parameters)

    def _rows(self, sql: str, parameters: Mapping[str, object]) -> pa.RecordBatchReader:
        with self._errors():
            result = self.connection.sql(sql, params=dict(parameters) or None)
            batches = result.to_arrow_reader(BATCH_ROWS)
            refuse_equal_names(batches.schema.names)
        return pa.RecordBatchReader.from_batches(batches.schema, self._named_errors(batches))

    def _named_errors(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._errors():
            yield from batches

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        # What fails in the middle of the rows comes through Arrow, which makes an OSError of it.
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._named(str(error).strip()) from None

    def _named(self, text: str) -> PenstockError:
        kind = text.partition(" Error")[0].lower()
        if kind == "interrupt":
            return time_limit_reached(self.limits)
        if kind == "out of memory":
            return memory_limit_reached(self.limits)
        if kind in ("internal", "fatal"):  # what follows is a stack
            return QueryFailed(why=ENGINE_FAILED)
        return QueryFailed(why=text)

    def write(
        self, sqls: Sequence[str], preparation: Preparation, form: WireFormat, out: BinaryIO
    ) -> None:
        sql, *others = sqls
        write_rows(self.answer(sql, preparation, {}), form, out)
        for other in others:
            write_rows(self._rows(other, {}), form, out)

    def end(self) -> None:
        with suppress(duckdb.ConnectionException):  # it is closed already
            self.connection.interrupt()

    def close(self) -> None:
        self._ending.close()
        self._timer.cancel()
        self.connection.close()


def time_limit_reached(limits: StatementLimits) -> QueryLimitReached:
    return QueryLimitReached(limit=f"{limits.seconds:g} s", setting="PENSTOCK_QUERY_SECONDS_MAX")


def memory_limit_reached(limits: StatementLimits) -> QueryLimitReached:
    limit = f"{limits.memory_bytes} bytes of memory"
    return QueryLimitReached(limit=limit, setting=MEMORY_SETTING)


def refuse_equal_names(names: list[str]) -> None:
    """Refuse equal names of columns: rows are shown by name, and one would be lost."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise QueryFailed(why=f"two columns are named {twice}; give one of them another name")
