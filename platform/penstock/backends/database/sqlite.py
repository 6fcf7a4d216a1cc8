"""SQLite: the embedded database, one file that one writer at a time may change."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError, DBAPIError, InternalError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from penstock.backends.database import DatabaseLimits, DatabaseUnreachable
from penstock.core.clock import SystemClock
from penstock.core.files import FILE_MODE

#: Whoever writes has the database for itself, and sees one state anyway.
ONE_STATE: dict[str, Any] = {}
READ_ONLY: dict[str, Any] = {"penstock_read_only": True}
#: SQLite's own clock ticks in milliseconds: lists by time would have no order.
CLOCK = "penstock_now_us"

_SCRUB_SECONDS_MAX = 60.0


def make_engine(url: sa.URL, limits: DatabaseLimits) -> Engine:
    """Make an engine that checks, with each connection and transaction, that the file is the same.
    SQLite would go on in a removed file, where commits are lost, or make an empty one."""
    in_memory = url.database in (None, "", ":memory:") or str(url.database).startswith("file:")
    path = None if in_memory else Path(str(url.database))
    lock_s = limits.lock_seconds_max
    arguments = {"timeout": lock_s, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=arguments, **limits.pool() if path else {})
    was_there = False

    def refuse() -> None:
        raise DatabaseUnreachable(why=f"the file {path} was removed or replaced while in use")

    @event.listens_for(engine, "do_connect")
    def _refuse_when_gone(*_connecting: Any) -> None:
        if path and was_there and not path.exists():
            refuse()
        if path and not was_there:
            _make_private(path)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, entry: ConnectionPoolEntry) -> None:
        nonlocal was_there
        was_there = True
        entry.info["file"] = _identity(path)
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.create_function(CLOCK, 0, SystemClock().now_us)
        cursor = connection.cursor()
        _use_wal(cursor, lock_s)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.info["file"] != _identity(path):
            connection.invalidate()
            refuse()
        read_only = connection.get_execution_options().get("penstock_read_only", False)
        # Without the lock one that reads first would fail at once when another wrote in between.
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def scrub(connection: Connection) -> None:
    """Wait for readers of older states, which the write-ahead log still has, and empty the log."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute("VACUUM")
        deadline = time.monotonic() + _SCRUB_SECONDS_MAX
        while cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                raise sqlite3.OperationalError("readers keep its write-ahead log in use")
            time.sleep(0.05)
    finally:
        cursor.close()


def why_unusable(error: DBAPIError, _limits: DatabaseLimits) -> str | None:
    """Say what is wrong with the database; None if the statement is wrong."""
    if type(error) is DatabaseError:
        return f"{error.orig}: the file is damaged: `penstock restore` brings a backup back"
    outage = isinstance(error, OperationalError | InternalError) or error.connection_invalidated
    return str(error.orig) if outage else None


def _make_private(path: Path) -> None:
    """Make the file private. SQLite gives the files beside it the same mode."""
    with suppress(OSError):  # it is there, or SQLite says why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        status = path.stat() if path else None
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino) if status else None


def _use_wal(cursor: sqlite3.Cursor, lock_seconds_max: float) -> None:
    """Turn on the write-ahead log; try again while another process does so with a new file."""
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
