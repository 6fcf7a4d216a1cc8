"""SQLite databases that agents keep sessions in: read while the agent may be writing them, and
changed in nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock_jobs.importers.report import Unfit
from penstock_jobs.importers.sources import Candidate, Source

_HEAD = b"SQLite format 3\x00"
#: No row of a session is so large.
_VALUE_BYTES_MAX = 64 * 1024 * 1024
#: A writer holds a database for moments.
_BUSY_SECONDS = 2.0
#: Steps of SQLite's machine for one statement: a hostile schema ends.
_STEPS_PER_CALL, _CALLS_MAX = 1_000_000, 2_000


@dataclass(frozen=True)
class DatabaseSource(Source):
    """A database with its log, in which its latest rows may still be."""

    def mark(self) -> str:
        log = self._log
        return f"{super().mark()}|{log.mark()}" if log.exists() else super().mark()

    @property
    def _log(self) -> Source:
        names = (*self.names[:-1], f"{self.names[-1]}-wal")
        return Source(self.path.with_name(names[-1]), self.root, names)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Read-only. Raises Unfit, also for what goes wrong while it is used."""
        if not self.exists():
            raise Unfit("it is no regular file")
        # Without a log nobody writes, and SQLite need not make files of its own beside it.
        mode = "mode=ro" if self._has_log() else "mode=ro&immutable=1"
        address = f"file:{quote(str(self.real))}?{mode}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
                _bound(connection)
                yield connection
        except sqlite3.Error as error:
            raise Unfit(f"its database cannot be read: {error}") from error

    def _has_log(self) -> bool:
        journal = self.real.with_name(f"{self.name}-journal")
        return self._log.exists() or journal.is_file()


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


def is_database(candidate: Candidate) -> bool:
    return not candidate.is_folder and candidate.beginning.startswith(_HEAD)


def database_of(candidate: Candidate) -> DatabaseSource:
    return DatabaseSource(candidate.path, candidate.root, candidate.names)


def tables_of(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of each true table: a view may be anything."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    found: dict[str, set[str]] = {}
    for (name,) in names.fetchall():
        quoted = str(name).replace('"', '""')
        columns = connection.execute(f'PRAGMA table_info("{quoted}")').fetchall()
        found[str(name)] = {str(column["name"]) for column in columns}
    return found


def is_database_with(candidate: Candidate, usual_name: str, *tables: str) -> bool:
    """Whether a file is a database with these tables. One that is broken or locked is taken for
    what its name says, so that reading it tells what is wrong."""
    if not is_database(candidate):
        return False
    try:
        with database_of(candidate).connection() as connection:
            return set(tables) <= tables_of(connection).keys()
    except Unfit:
        return candidate.name == usual_name


def row_of(row: sqlite3.Row) -> dict[str, Any]:
    return dict(zip(row.keys(), row, strict=True))
