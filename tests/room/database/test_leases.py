"""One at a time, by the database's clock, however long the work takes."""

import sqlalchemy as sa

from penstock.backends.database import migrations
from penstock.backends.database.engine import Database
from penstock.backends.database.leases import leased
from penstock.backends.database.tables import lease
from tests.support.waiting import eventually


def until(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(sa.select(lease.c.until)).scalar_one())


def test_one_at_a_time(database: Database) -> None:
    migrations.upgrade(database)
    with leased(database, "work", "a", 30) as first, leased(database, "work", "b", 30) as second:
        assert (first, second) == (True, False)
        with leased(database, "other work", "b", 30) as other:
            assert other
    with leased(database, "work", "b", 30) as after, leased(database, "work", "b", 30) as again:
        assert (after, again) == (True, False)  # two threads of a process are two


def test_it_is_renewed_while_the_work_goes_on(database: Database) -> None:
    migrations.upgrade(database)
    with leased(database, "work", "a", 0.2):
        before = until(database)
        eventually(lambda: until(database) > before)


def test_who_lost_it_does_not_take_it_back(database: Database) -> None:
    migrations.upgrade(database)
    with leased(database, "work", "hangs", 30):
        with database.write() as connection:
            connection.execute(sa.update(lease).values(until=0))
        with leased(database, "work", "b", 30) as mine:
            assert mine
            held_until = until(database)
    # The first one ended while the second held it, and again afterwards.
    with leased(database, "work", "c", 60) as mine:
        assert mine
        assert until(database) > held_until


def test_who_ends_late_does_not_end_another_s(database: Database) -> None:
    migrations.upgrade(database)
    late = leased(database, "work", "late", 30)
    late.__enter__()
    with database.write() as connection:
        connection.execute(sa.update(lease).values(until=0))
    with leased(database, "work", "b", 30) as mine:
        assert mine
        late.__exit__(None, None, None)
        with leased(database, "work", "c", 30) as third:
            assert not third
