"""What a transaction promises, on every database."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database, clock_us, insert_new, now_us, put_rows
from penstock.backends.database.migrations import upgrade
from penstock.lake.tables import lake_head, snapshot

OpenDatabase = Callable[..., Database]
#: Long enough that a test which needs all of it fails by being slow, not by chance.
PATIENCE_SECONDS = 180


def insert(name: str) -> sa.Insert:
    return sa.insert(snapshot).values(name=name, snap=1, note="", created_at=now_us())


def names(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(sa.select(snapshot.c.name).order_by(snapshot.c.name)))


@pytest.fixture
def ready(database: Database) -> Database:
    upgrade(database)
    return database


def test_a_write_is_there_for_others_when_its_block_has_ended(
    ready: Database, open_database: OpenDatabase
) -> None:
    with ready.write() as connection:
        connection.execute(insert("a"))
    assert names(open_database()) == ["a"]


class _OfTheCaller(Exception):
    """Anything that happens inside a block."""


def test_an_exception_takes_all_of_a_write_back(ready: Database) -> None:
    def write() -> None:
        with ready.write() as connection:
            connection.execute(insert("a"))
            connection.execute(insert("b"))
            raise _OfTheCaller

    with pytest.raises(_OfTheCaller):
        write()
    assert names(ready) == []


def test_a_read_changes_nothing(ready: Database) -> None:
    """Also when a statement inside it tries, which PostgreSQL refuses at once."""
    with suppress(DatabaseUnreachable), ready.read() as connection:
        connection.execute(insert("a"))
    assert names(ready) == []


def test_a_read_sees_one_state(ready: Database, open_database: OpenDatabase) -> None:
    other = open_database()
    count = sa.select(sa.func.count()).select_from(snapshot)
    with ready.read() as connection:
        assert connection.scalar(count) == 0
        with other.write() as writing:
            writing.execute(insert("a"))
        assert connection.scalar(count) == 0
    assert names(ready) == ["a"]


def test_a_reader_does_not_wait_for_a_writer(ready: Database, open_database: OpenDatabase) -> None:
    other = open_database(lock_seconds_max=0)
    with ready.write() as connection:
        connection.execute(insert("a"))
        assert names(other) == []
    assert names(other) == ["a"]


def test_a_writer_waits_for_another(ready: Database, open_database: OpenDatabase) -> None:
    other = open_database(lock_seconds_max=PATIENCE_SECONDS)

    def write() -> None:
        with other.write() as connection:
            connection.execute(insert("b"))

    with ready.write() as connection:
        connection.execute(insert("a"))
        waiting = threading.Thread(target=write)
        waiting.start()
    waiting.join(PATIENCE_SECONDS)
    assert names(ready) == ["a", "b"]


def test_a_writer_waits_so_long_and_then_says_why(
    ready: Database, open_database: OpenDatabase
) -> None:
    other = open_database(lock_seconds_max=0.2)
    touch = sa.update(lake_head).values(snap=1)

    def write() -> None:
        with other.write() as connection:
            connection.execute(touch)

    write()
    with ready.write() as connection:
        connection.execute(touch)
        begun = time.monotonic()
        with pytest.raises(DatabaseUnreachable, match=r"is locked|held a lock for over 0\.2 s"):
            write()
        assert time.monotonic() - begun >= 0.19
    write()


def test_a_mistake_in_a_statement_is_no_outage(ready: Database) -> None:
    with ready.write() as connection:
        connection.execute(insert("a"))
    with pytest.raises(sa.exc.IntegrityError), ready.write() as connection:
        connection.execute(insert("a"))


def test_too_many_at_once_is_an_outage(ready: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready.engine.pool, "_timeout", 0)  # half a minute otherwise
    with ExitStack() as reading:
        for _ in range(15):
            reading.enter_context(ready.read())
        with pytest.raises(DatabaseUnreachable, match="connections are in use"):
            names(ready)
    assert names(ready) == []


def test_numbers_add_up_to_whole_numbers(ready: Database) -> None:
    total = sa.select(sa.func.sum(lake_head.c.snap + sa.literal(2**62, sa.BigInteger) * 1))
    with ready.read() as connection:
        found = connection.execute(total).scalar_one()
    assert (type(found), found) == (int, 2**62)


def test_the_clock_is_the_database_s_and_counts_microseconds(ready: Database) -> None:
    """The statement holds no time: it is read where and when the statement runs."""
    with ready.read() as connection:
        before = time.time_ns() // 1000
        assert before <= clock_us(connection) <= time.time_ns() // 1000
    dialects = [ready.engine.dialect, postgresql.dialect()]  # type: ignore[no-untyped-call]
    for dialect in dialects:
        compiled = sa.select(now_us()).compile(dialect=dialect)
        assert compiled.params == {}
        assert "penstock_now_us()" in str(compiled) or "clock_timestamp()" in str(compiled)


def test_rows_are_new_changed_or_added_up(ready: Database) -> None:
    row = {"name": "a", "snap": 1, "note": "", "created_at": now_us()}
    with ready.write() as connection:
        assert insert_new(connection, snapshot, row)
        assert not insert_new(connection, snapshot, row)
        rows = [{"name": name, "snap": 4, "note": name, "created_at": 2} for name in "ab"]
        put_rows(connection, snapshot, rows, added=["snap"])
        query = sa.select(snapshot.c.name, snapshot.c.snap, snapshot.c.note)
        found = connection.execute(query.order_by(snapshot.c.name)).all()
    assert [tuple(row) for row in found] == [("a", 5, "a"), ("b", 4, "b")]
