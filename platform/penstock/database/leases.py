"""Leases: work that only one process may do at a time.

A lease is held by the database's clock, and a thread renews it while the work goes on. A
process that hangs loses it; what it does when it wakes up must be safe by itself.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
import structlog

from penstock.database.engine import Database, insert_new, now_us
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

    lost = False

    def renew() -> None:
        nonlocal lost
        try:
            if not lost and not _extend(database, name, epoch, lease_s):
                lost = True
                log_line.warning("a lease was lost while its work went on", lease=name)
        except DatabaseUnreachable as error:
            log_line.warning("a lease could not be renewed", lease=name, why=str(error))

    try:
        with repeating(renew, lease_s / _RENEWALS_A_LEASE, f"lease-{name}"):
            yield True
    finally:
        with suppress(DatabaseUnreachable):  # then it runs out
            _extend(database, name, epoch, None)


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    """Do the work on a thread while the block runs, each time after a pause. Where the database
    cannot be reached, the next time may succeed."""
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


def _take(database: Database, name: str, owner: str, lease_s: float) -> int | None:
    """The epoch of the lease; None when another owner has it."""
    with database.write() as connection:
        insert_new(connection, lease, {"name": name, "epoch": 0, "until": 0})
        taken = connection.execute(
            sa.update(lease)
            .where(lease.c.name == name, lease.c.until < now_us())
            .values(owner=owner, epoch=lease.c.epoch + 1, until=_in(lease_s))
            .returning(lease.c.epoch)
        )
        return taken.scalar_one_or_none()


def _extend(database: Database, name: str, epoch: int, lease_s: float | None) -> bool:
    """Renew the lease, or end it without `lease_s`. False when another owner has it by now."""
    until = 0 if lease_s is None else _in(lease_s)
    query = sa.update(lease).where(lease.c.name == name, lease.c.epoch == epoch)
    with database.write() as connection:
        return connection.execute(query.values(until=until)).rowcount == 1


def _in(seconds: float) -> sa.ColumnElement[int]:
    return now_us() + round(seconds * 1_000_000)
