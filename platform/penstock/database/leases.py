"""Work that only one process may do at a time: who has the lease does it.

A lease is held by the database's clock and renewed by a thread as long as the work goes on. A
process that hangs loses it; what it does when it wakes up must be safe by itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
import structlog

from penstock.database.engine import Database, insert_of, now_us
from penstock.database.errors import DatabaseUnreachable
from penstock.database.tables import lease

_RENEWALS_A_LEASE = 3

log_line = structlog.get_logger()


@contextmanager
def leased(database: Database, name: str, owner: str, lease_s: float) -> Iterator[bool]:
    """Whether this owner has the lease until the block ends."""
    epoch = _take(database, name, owner, lease_s)
    if epoch is None:
        yield False
        return
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(lease_s / _RENEWALS_A_LEASE):
            try:
                if not _renew(database, name, epoch, lease_s):
                    log_line.warning("a lease was lost while its work went on", lease=name)
                    return
            except DatabaseUnreachable as error:
                log_line.warning("a lease could not be renewed", lease=name, why=str(error))

    keeper = threading.Thread(target=keep, name=f"lease-{name}", daemon=True)
    keeper.start()
    try:
        yield True
    finally:
        ended.set()
        keeper.join()
        with suppress(DatabaseUnreachable):  # then it runs out
            _release(database, name, epoch)


def _take(database: Database, name: str, owner: str, lease_s: float) -> int | None:
    """The epoch that it is held by; None when another holds it."""
    until = now_us() + round(lease_s * 1_000_000)
    with database.write() as connection:
        made = insert_of(connection)(lease).values(name=name, epoch=0, until=0)
        connection.execute(made.on_conflict_do_nothing())
        taken = connection.execute(
            sa.update(lease)
            .where(lease.c.name == name, lease.c.until < now_us())
            .values(owner=owner, epoch=lease.c.epoch + 1, until=until)
            .returning(lease.c.epoch)
        )
        return taken.scalar_one_or_none()


def _renew(database: Database, name: str, epoch: int, lease_s: float) -> bool:
    """False when another has it by now."""
    longer = now_us() + round(lease_s * 1_000_000)
    with database.write() as connection:
        return connection.execute(_held(name, epoch).values(until=longer)).rowcount == 1


def _release(database: Database, name: str, epoch: int) -> None:
    with database.write() as connection:
        connection.execute(_held(name, epoch).values(until=0))


def _held(name: str, epoch: int) -> sa.Update:
    return sa.update(lease).where(lease.c.name == name, lease.c.epoch == epoch)


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    """The first time after a pause. A database that cannot be reached is asked the next time."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            with suppress(DatabaseUnreachable):
                work()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
