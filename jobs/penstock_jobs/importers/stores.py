"""Reads SQLite databases that agents may be writing, without changing them; and rows of exports."""

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source

_HEAD = b"SQLite format 3\x00"
#: Larger than any row of a session.
_VALUE_BYTES_MAX = 64 * 1024 * 1024
#: Writers hold a database only for moments.
_BUSY_SECONDS = 2.0
#: Steps of SQLite's virtual machine for one statement, against hostile schemas.
_STEPS_PER_CALL, _CALLS_MAX = 1_000_000, 2_000


@dataclass(frozen=True)
class DatabaseSource(Source):
    """A database with its write-ahead log, which may hold the latest rows."""

    def mark(self) -> str:
        log = self._log
        return f"{super().mark()}|{log.mark()}" if log.exists() else super().mark()

    @property
    def _log(self) -> Source:
        return self.beside(f"{self.name}-wal")

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Open it read-only. Raises SourceUnfit, also for errors within the block."""
        if not self.exists():
            raise SourceUnfit("it is not a regular file")
        # Without a log nobody writes, and SQLite needs no files of its own beside it.
        is_written = self._log.exists() or self.beside(f"{self.name}-journal").real.is_file()
        mode = "mode=ro" if is_written else "mode=ro&immutable=1"
        address = f"file:{quote(str(self.real))}?{mode}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
                _bound(connection)
                yield connection
        except sqlite3.Error as error:
            raise SourceUnfit(f"its database cannot be read: {error}") from error


def _bound(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA trusted_schema = 0")
    connection.text_factory = lambda content: content.decode(errors="replace")
    connection.row_factory = sqlite3.Row
    left = _CALLS_MAX

    def spend() -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    connection.set_progress_handler(spend, _STEPS_PER_CALL)


def tables_of(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of each table. Views are left out: they may be anything."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    found: dict[str, set[str]] = {}
    for (name,) in names.fetchall():
        quoted = str(name).replace('"', '""')
        columns = connection.execute(f'PRAGMA table_info("{quoted}")').fetchall()
        found[str(name)] = {str(column["name"]) for column in columns}
    return found


def is_database(candidate: Candidate) -> bool:
    return candidate.beginning.startswith(_HEAD)


def is_database_with(candidate: Candidate, usual_name: str, *tables: str) -> bool:
    """Whether a file is a database with these tables. A broken or locked one is recognised by its
    name, so that reading it reports the problem."""
    if not is_database(candidate):
        return False
    database = DatabaseSource(candidate.path, candidate.folder, candidate.names)
    try:
        with database.connection() as connection:
            return set(tables) <= tables_of(connection).keys()
    except SourceUnfit:
        return candidate.plain_name == usual_name


Query = Callable[..., list[dict[str, Any]]]


def rows_in(connection: sqlite3.Connection, sql: str, *values: object) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(sql, values).fetchall()]


class DatabaseImporter(Importer):
    """A format whose sources are SQLite databases."""

    usual_name: ClassVar[str]
    tables: ClassVar[Sequence[str]]

    def recognises(self, candidate: Candidate) -> bool:
        return is_database_with(candidate, self.usual_name, *self.tables)

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        yield candidate.source(DatabaseSource)

    @abstractmethod
    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        """Read all sessions. `query` takes a statement and its values, and returns the rows."""

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        assert isinstance(source, DatabaseSource)
        with source.connection() as connection:
            yield from self.sessions(partial(rows_in, connection), source, notes)


_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 200
#: Larger than any uncompressed row group of an export.
_GROUP_BYTES_MAX = 2 * 1024 * 1024 * 1024


def is_export(candidate: Candidate) -> bool:
    begins = candidate.beginning
    return begins.lstrip()[:1] in (b"{", b"[") or begins.startswith(_PARQUET)


def columns_of(candidate: Candidate) -> frozenset[str]:
    if not candidate.beginning.startswith(_PARQUET):
        return frozenset()
    try:
        with _parquet(candidate) as file:
            return frozenset(file.schema_arrow.names)
    except SourceUnfit:
        return frozenset()


def rows_of(source: Source, notes: Notes, *holders: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the rows of an export, each with its place. Raises SourceUnfit.

    A document is a list of rows, an object that holds one under a name of `holders`, or a row."""
    probe = source.probe()
    if probe.is_lines:
        for number, row in source.rows(notes):
            yield f"line {number}", row
        return
    is_parquet = probe.beginning.startswith(_PARQUET)
    rows = _parquet_rows(source) if is_parquet else _held(source, holders)
    for at, row in notes.objects("row", rows):
        yield f"row {at + 1}", row


def _held(source: Source, holders: tuple[str, ...]) -> list[Any]:
    document = source.document()
    if isinstance(document, dict):
        held = (document[name] for name in holders if isinstance(document.get(name), list))
        document = next(held, document)
    return document if isinstance(document, list) else [document]


def _parquet_rows(source: Source) -> Iterator[Any]:
    with _parquet(source) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            for at, field in enumerate(batch.schema):
                if pa.types.is_timestamp(field.type):
                    column = batch.column(at).cast(pa.timestamp("us", field.type.tz), safe=False)
                    batch = batch.set_column(at, field.name, column)  # noqa: PLW2901
            yield from map(_plain, batch.to_pylist(maps_as_pydicts="lossy"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


@contextmanager
def _parquet(source: Source) -> Iterator[pq.ParquetFile]:
    with source.opened() as opened:
        try:
            file = pq.ParquetFile(opened, memory_map=False)
            groups = (file.metadata.row_group(at) for at in range(file.metadata.num_row_groups))
            if any(group.total_byte_size > _GROUP_BYTES_MAX for group in groups):
                raise SourceUnfit("it has a row group of more than 2 GiB")
            yield file
        except (pa.ArrowException, OSError) as error:
            raise SourceUnfit(f"it is not a Parquet file that can be read: {error}") from error
