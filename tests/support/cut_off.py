"""A process that ends between two transactions."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.tables import lease
from penstock.lake.tables import log_partition, reader_lease
from tests.support.lakes import HandLake


class CutOff(BaseException):
    """As if the process was killed: whatever it would do next does not happen."""


@contextmanager
def ended_after(lake: HandLake, transactions: int) -> Iterator[None]:
    """The block's process ends before the transaction that follows these."""
    database, write = lake.lake.database, lake.lake.database.write
    left = transactions

    def counted(**options: bool) -> AbstractContextManager[Connection]:
        nonlocal left
        left -= 1
        if left < 0:
            raise CutOff
        return write(**options)

    database.write = counted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        database.write = write  # type: ignore[method-assign]
        with database.write() as connection:  # its leases run out
            for table in (lease, reader_lease):
                connection.execute(sa.update(table).values(until=0))
            connection.execute(sa.update(log_partition).values(lease_until=0))
