"""Leases on work that only one process may do at a time, by the database's clock.

A process that hangs loses its lease. What it does after waking up must be safe without it."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.backends.database.tables import lease

_RENEWALS_A_LEASE = 3
_LOOK_SECONDS = 0.1


@contextmanager
def leased(database: Database, name: str, owner: str, lease_s: float) -> Iterator[bool]:
    """Try to take a lease, and renew it until the block ends. Yields whether the owner has it."""
    with database.write() as connection:
        insert_new(connection, lease, {"name": name, "epoch": 0, "until": 0})
        epoch = connection.execute(
            sa.update(lease)
            .where(lease.c.name == name, lease.c.until < now_us())
            .values(owner=owner, epoch=lease.c.epoch + 1, until=now_us(lease_s))
            .returning(lease.c.epoch)
        ).scalar_one_or_none()
    if epoch is None:
        yield False
        return
    mine = sa.update(lease).where(lease.c.name == name, lease.c.epoch == epoch)
    lost = False

    def renew() -> None:
        nonlocal lost
        if lost:
            return
        try:
            with database.write() as connection:
                lost = connection.execute(mine.values(until=now_us(lease_s))).rowcount != 1
        except DatabaseUnreachable as error:
            _warn("a lease could not be renewed", lease=name, why=str(error))
        if lost:
            _warn("a lease was lost while its work went on", lease=name)

    try:
        with repeating(renew, lease_s / _RENEWALS_A_LEASE, f"lease-{name}"):
            yield True
    finally:
        # Where the database cannot be reached, the lease runs out.
        with suppress(DatabaseUnreachable), database.write() as connection:
            connection.execute(mine.values(until=0))


@contextmanager
def wait_for_lease(database: Database, name: str, lease_s: float, wait_s: float) -> Iterator[bool]:
    """Wait up to `wait_s` for a lease. Yields whether this process has it until the block ends."""
    owner, deadline_s = uuid.uuid4().hex, time.monotonic() + wait_s
    while True:
        with leased(database, name, owner, lease_s) as mine:
            if mine or time.monotonic() >= deadline_s:
                yield mine
                return
        time.sleep(_LOOK_SECONDS)


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            with suppress(DatabaseUnreachable):  # the next time may succeed
                work()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _warn(event: str, **facts: str) -> None:
    import structlog  # slow to load, and most commands with a lease log nothing

    structlog.get_logger().warning(event, **facts)
