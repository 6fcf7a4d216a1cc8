"""SQLite: the embedded database, one file that one writer at a time may change."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError, DBAPIError, InternalError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from penstock.clock import SystemClock
from penstock.database.errors import DatabaseUnreachable
from penstock.database.limits import DatabaseLimits

#: Options of a transaction that sees one state, and of one that changes nothing. A transaction
#: that writes has the database for itself, and sees one state anyway.
ONE_STATE: dict[str, Any] = {}
READ_ONLY: dict[str, Any] = {"penstock_read_only": True}
#: SQLite's own clock ticks in milliseconds. Several transactions end within one, and lists by
#: time would have no order.
CLOCK = "penstock_now_us"


def make_engine(url: sa.URL, limits: DatabaseLimits) -> Engine:
    file = _SQLiteFile(url)
    waiting = {"timeout": limits.lock_seconds_max, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=waiting, **limits.pool() if file.path else {})

    @event.listens_for(engine, "do_connect")
    def _refuse_when_gone(*_connecting: Any) -> None:
        file.refuse_when_gone()

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, entry: ConnectionPoolEntry) -> None:
        entry.info["file"] = file.opened()
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.create_function(CLOCK, 0, SystemClock().now_us)
        cursor = connection.cursor()
        _use_wal(cursor, limits.lock_seconds_max)
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


def why_unusable(error: DBAPIError, _limits: DatabaseLimits) -> str | None:
    """What is wrong with the database; None when the statement is to blame. A file that is no
    database, or a damaged one, raises a plain DatabaseError; its subclasses mean mistakes in
    statements."""
    outage = isinstance(error, OperationalError | InternalError) or type(error) is DatabaseError
    return str(error.orig) if outage or error.connection_invalidated else None


class _SQLiteFile:
    """The file behind the connections. SQLite does not notice that it is removed or replaced: it
    would go on in the removed file, where all commits are lost, or make an empty one."""

    def __init__(self, url: sa.URL) -> None:
        name = url.database if url.database not in (None, "", ":memory:") else None
        self.path = Path(name) if name and not name.startswith("file:") else None
        self._was_there = False

    def identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat() if self.path else None
        except FileNotFoundError:
            return None
        return (status.st_dev, status.st_ino) if status else None

    def opened(self) -> tuple[int, int] | None:
        self._was_there = True
        return self.identity()

    def refuse_when_gone(self) -> None:
        if self.path and self._was_there and not self.path.exists():
            self.refuse()

    def refuse(self) -> None:
        raise DatabaseUnreachable(why=f"the file {self.path} was removed or replaced while in use")


def _use_wal(cursor: sqlite3.Cursor, lock_seconds_max: float) -> None:
    """SQLite fails at once, without waiting, when another process does the same to a new file."""
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
