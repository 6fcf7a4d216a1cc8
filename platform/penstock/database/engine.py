"""Connections and transactions, on SQLite and PostgreSQL alike."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine, event
from sqlalchemy.exc import DatabaseError, DBAPIError, InternalError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry

from penstock.errors import DatabaseUnreachable


class Database:
    """The metadata database. Safe to share between threads."""

    def __init__(self, url: str, *, lock_seconds_max: float) -> None:
        self.url = sa.make_url(url)
        self.engine = _make_engine(self.url, lock_seconds_max)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, committed when the block ends well. Raises DatabaseUnreachable."""
        with self._translated(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and changes nothing."""
        with self._translated(), self.engine.connect() as plain:
            connection = plain.execution_options(penstock_read_only=True)
            with connection.begin() as transaction:
                yield connection
                transaction.rollback()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.TimeoutError as error:
            why = f"all its connections are in use ({self._shown()})"
            raise DatabaseUnreachable(why=why) from error
        except DBAPIError as error:
            if error.connection_invalidated or _is_outage(error):
                raise DatabaseUnreachable(why=f"{error.orig} ({self._shown()})") from error
            raise

    def _shown(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self.engine.dispose()


def _is_outage(error: DBAPIError) -> bool:
    """Whether the database is to blame, not the statement. A file that is no database, or a
    damaged one, comes as a plain DatabaseError, whose subclasses are mistakes in statements."""
    return isinstance(error, OperationalError | InternalError) or type(error) is DatabaseError


def now_us() -> ColumnElement[int]:
    """The database's clock, as an expression: leases compare with no other."""
    return _DatabaseClock()


class _DatabaseClock(sa.sql.functions.FunctionElement[int]):
    type = sa.BigInteger()
    inherit_cache = True


@compiles(_DatabaseClock, "sqlite")
def _sqlite_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@compiles(_DatabaseClock, "postgresql")
def _postgresql_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"


def _make_engine(url: sa.URL, lock_seconds_max: float) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, lock_seconds_max)
    return sa.create_engine(url, pool_pre_ping=True)


def _sqlite(url: sa.URL, lock_seconds_max: float) -> Engine:
    engine = sa.create_engine(
        url, connect_args={"timeout": lock_seconds_max, "check_same_thread": False}
    )
    file = _SQLiteFile(url)

    @event.listens_for(engine, "do_connect")
    def _look(*_connecting: Any) -> None:
        file.refuse_when_gone()

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, entry: ConnectionPoolEntry) -> None:
        entry.info["file"] = file.opened()
        connection.isolation_level = None  # transactions are begun below, not by the driver
        cursor = connection.cursor()
        _use_wal(cursor, lock_seconds_max)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.info["file"] != file.identity():
            connection.invalidate()
            file.refuse()
        read_only = connection.get_execution_options().get("penstock_read_only", False)
        # A transaction that reads first and writes later would fail at once, without
        # waiting, when another wrote in between: take the lock at the beginning.
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


class _SQLiteFile:
    """The file behind the connections. SQLite does not see when it is removed or replaced: it
    would go on in the removed one, where all that is committed is lost, or make an empty one."""

    def __init__(self, url: sa.URL) -> None:
        named = url.database if url.database not in (None, "", ":memory:") else None
        self._path = Path(named) if named and not named.startswith("file:") else None
        self._was_there = False

    def identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if found else None

    def opened(self) -> tuple[int, int] | None:
        self._was_there = True
        return self.identity()

    def refuse_when_gone(self) -> None:
        if self._path and self._was_there and not self._path.exists():
            self.refuse()

    def refuse(self) -> None:
        raise DatabaseUnreachable(why=f"the file {self._path} was removed or replaced while in use")


def _use_wal(cursor: sqlite3.Cursor, lock_seconds_max: float) -> None:
    """SQLite fails at once, without waiting, when another does the same to a new file."""
    deadline = time.monotonic() + lock_seconds_max
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
