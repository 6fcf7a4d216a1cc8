"""What may happen to PostgreSQL and on the way to it, the error it gives, and how work goes on."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from penstock.backends.database import DatabaseLimits, DatabaseUnreachable, migrations
from penstock.backends.database.engine import Database, lock_table, parse_database_address
from penstock.core.errors import ExtraMissing, InvalidInput
from penstock.lake.tables import lake_head, reader_lease, snapshot
from tests.room.database.test_sqlite import look, touch
from tests.support.servers.interleaving import waiting_or_done
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import PostgresServer, running_postgres

OpenDatabase = Callable[..., Database]
PATIENCE_SECONDS = 30


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One to be stopped and killed. Each test leaves it running."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def at_own_server(own_server: PostgresServer) -> Iterator[Database]:
    with own_server.database() as url:
        database = Database(url)
        yield database
        database.close()


# The server goes away and comes back


def test_a_killed_server_takes_back_what_was_not_committed_and_keeps_the_rest(
    at_own_server: Database, own_server: PostgresServer
) -> None:
    touch(at_own_server)

    def half() -> None:
        with at_own_server.write() as connection:
            connection.execute(sa.update(lake_head).values(snap=100))
            own_server.kill()
            connection.execute(sa.update(lake_head).values(snap=200))

    with pytest.raises(DatabaseUnreachable, match=r"connection is lost|closed"):
        half()
    for use in (touch, look, migrations.upgrade, migrations.check):
        with pytest.raises(DatabaseUnreachable, match="Connection refused"):
            use(at_own_server)
    own_server.start()
    assert look(at_own_server) == 1
    touch(at_own_server)
    assert look(at_own_server) == 2


def test_a_read_that_is_cut_off_is_an_outage(
    at_own_server: Database, own_server: PostgresServer
) -> None:
    def read_twice() -> None:
        with at_own_server.read() as connection:
            for _ in range(2):
                connection.execute(sa.select(lake_head)).all()
                own_server.restart()

    with pytest.raises(DatabaseUnreachable):
        read_twice()
    assert look(at_own_server) == 0


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_who_was_idle_while_the_server_was_restarted_does_not_notice(
    at_own_server: Database, own_server: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    touch(at_own_server)
    end(own_server)
    own_server.start()
    assert look(at_own_server) == 1


def test_a_session_that_an_administrator_ends_is_an_outage(
    open_database: OpenDatabase, postgres: PostgresServer
) -> None:
    database = open_database()

    def ended() -> None:
        with database.write() as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            postgres.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
            connection.execute(sa.update(lake_head).values(snap=100))

    with pytest.raises(DatabaseUnreachable, match="terminating connection"):
        ended()
    assert look(database) == 0


# Waiting too long


def test_a_statement_that_takes_too_long_is_stopped(url: str) -> None:
    database = Database(url, DatabaseLimits(statement_seconds_max=0.2))
    with (
        pytest.raises(DatabaseUnreachable, match=r"a statement was stopped; it may take 0\.2 s"),
        database.read() as connection,
    ):
        connection.execute(sa.select(sa.func.pg_sleep(PATIENCE_SECONDS)))
    assert look(database) == 0
    database.close()


def test_a_transaction_that_pauses_too_long_is_ended(url: str) -> None:
    """Its locks would stop everybody."""
    patient, paused = Database(url), Database(url, DatabaseLimits(statement_seconds_max=0.2))

    def pause() -> None:
        with paused.write() as connection:
            connection.execute(sa.update(lake_head).values(snap=100))
            touch(patient)  # waits for the lock of the one that pauses
            connection.execute(sa.update(lake_head).values(snap=200))

    with pytest.raises(DatabaseUnreachable, match="idle-in-transaction timeout"):
        pause()
    assert look(patient) == 1
    patient.close()
    paused.close()


def test_no_wait_is_for_ever(url: str) -> None:
    """Zero would be, to the server."""
    database = Database(url, DatabaseLimits(lock_seconds_max=0, statement_seconds_max=7))
    pause = "idle_in_transaction_session_timeout"
    names = ("lock_timeout", "statement_timeout", pause, "application_name")
    assert shown(database, *names) == ["1ms", "7s", "7s", "penstock"]
    database.close()


def test_the_address_has_the_last_word(url: str) -> None:
    database = Database(f"{url}?application_name=mine&options=-c%20lock_timeout%3D3s")
    names = ("application_name", "lock_timeout", "statement_timeout")
    assert shown(database, *names) == ["mine", "3s", "30s"]
    database.close()


def shown(database: Database, *names: str) -> list[str]:
    with database.read() as connection:
        return [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names]


def test_of_two_that_wait_for_each_other_one_gives_way(open_database: OpenDatabase) -> None:
    database = open_database()
    both_hold = threading.Barrier(2)
    gave_way: list[str] = []
    names = ["a", "b"]
    for name in names:
        with database.write() as connection:
            row = {"name": name, "snap": 0, "note": "", "created_at": 0}
            connection.execute(sa.insert(snapshot).values(row))

    def change(first: str, second: str) -> None:
        try:
            with database.write() as connection:
                for number, name in enumerate([first, second]):
                    here = snapshot.c.name == name
                    connection.execute(sa.update(snapshot).where(here).values(note=first))
                    if number == 0:
                        both_hold.wait(PATIENCE_SECONDS)
        except DatabaseUnreachable as error:
            gave_way.append(str(error))

    threads = [threading.Thread(target=change, args=pair) for pair in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    [why] = gave_way
    assert "deadlock detected" in why
    with database.read() as connection:
        assert len(set(connection.scalars(sa.select(snapshot.c.note)))) == 1


# What cannot be reached or used


def test_what_cannot_be_reached_is_a_clear_error(url: str, postgres: PostgresServer) -> None:
    for address, words in (
        (f"postgresql://me:geheim@127.0.0.1:{free_port()}/penstock", "Connection refused"),
        ("postgresql://me:geheim@nowhere.invalid/penstock", r"nowhere\.invalid"),
        (postgres.url("postgres", password="geheim"), "password authentication failed"),
        (postgres.url("missing"), 'database "missing" does not exist'),
        (f"{url}?sslmod=require", "sslmod"),
    ):
        refuse(str(address), words)


def test_an_empty_database_is_a_clear_error(postgres: PostgresServer) -> None:
    with postgres.database(migrated=False) as url:
        database = Database(url)
        for use in (look, touch):
            with pytest.raises(DatabaseUnreachable, match='relation "lake_head" does not exist'):
                use(database)
        database.close()


def test_tables_of_somebody_else_are_a_clear_error(url: str, postgres: PostgresServer) -> None:
    name = url.rpartition("/")[2]
    postgres.execute("REASSIGN OWNED BY penstock TO admin", name)
    postgres.execute(f"ALTER DATABASE {name} OWNER TO penstock")
    refuse(url, "permission denied for table lake_head")


def test_a_server_that_may_only_be_read_is_a_clear_error(
    url: str, postgres: PostgresServer
) -> None:
    """As a standby is, or one whose disk is full."""
    name = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database = Database(url)
    with pytest.raises(DatabaseUnreachable, match="read-only transaction"):
        touch(database)
    assert look(database) == 0
    database.close()


def test_too_many_connections_are_a_clear_error(url: str, postgres: PostgresServer) -> None:
    name = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
    first, second = Database(url), Database(url)
    with first.read(), pytest.raises(DatabaseUnreachable, match="too many connections"):
        look(second)
    first.close()
    assert look(second) == 0
    second.close()


def test_a_server_that_does_not_answer_is_given_up(
    own_server: PostgresServer, at_own_server: Database
) -> None:
    database = Database(str(own_server.url("postgres")), DatabaseLimits(connect_seconds_max=0.1))
    own_server.pause()
    try:
        with pytest.raises(DatabaseUnreachable, match="timeout"):
            look(database)
    finally:
        own_server.resume()
    database.close()
    assert look(at_own_server) == 0


def refuse(url: str, words: str) -> None:
    """Every use says this, and no password."""
    database = Database(url)
    for use in (look, touch):
        with pytest.raises(DatabaseUnreachable, match=words) as refused:
            use(database)
        password = database.url.password
        assert isinstance(password, str)
        assert password not in str(refused.value)
        assert "\n" not in str(refused.value)
    database.close()


# Addresses


def test_an_address_may_be_written_as_elsewhere(url: str) -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        database = Database(scheme + url[url.index(":") :])
        assert look(database) == 0
        database.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://me:geheim@host/x", "neither sqlite: nor postgresql:"),
        ("postgresql+asyncpg://me:geheim@host/x", "neither sqlite: nor postgresql:"),
        ("postgresql://me:geheim@host:port/x", "it is not an address"),
        ("penstock.db", "it is not an address"),
        ("", "it is not an address"),
    ],
)
def test_any_other_address_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        parse_database_address(url)
    assert "geheim" not in str(refused.value)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock\[postgres\]'"):
        Database("postgresql://host/x")


# Locks


def test_who_holds_a_table_alone_waits_for_others_and_sees_what_they_left(
    open_database: OpenDatabase, postgres: PostgresServer
) -> None:
    one, other = open_database(), open_database()
    seen: list[int] = []

    def count_alone() -> None:
        with other.write(one_state=True) as connection:
            lock_table(connection, reader_lease, alone=True)
            counted = sa.select(sa.func.count()).select_from(reader_lease)
            seen.append(connection.execute(counted).scalar_one())

    with ExitStack() as afterwards, one.write() as connection:
        lock_table(connection, reader_lease, alone=False)
        with open_database(0).write() as beside:
            lock_table(beside, reader_lease, alone=False)  # others that share do not wait
        afterwards.enter_context(waiting_or_done(postgres, count_alone))
        assert look(one) == 0  # nor do readers
        connection.execute(sa.insert(reader_lease).values(id="x", snap=0, until=0))
    assert seen == [1]


def test_an_upgrade_waits_for_another_as_long_as_that_takes(postgres: PostgresServer) -> None:
    with postgres.database(migrated=False) as url:
        impatient = Database(url, DatabaseLimits(lock_seconds_max=1, statement_seconds_max=1))
        database = Database(url)
        with ExitStack() as afterwards, migrations.exclusive_transaction(database) as connection:
            afterwards.enter_context(
                waiting_or_done(postgres, lambda: migrations.upgrade(impatient))
            )
            connection.execute(sa.select(sa.func.pg_sleep(1.5)))
        migrations.check(database)
        for one in (impatient, database):
            one.close()
