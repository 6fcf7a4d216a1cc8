"""Intents: names of files that are about to be written, or are to be deleted.

An intent is written before each file: Penstock did not make a file that neither a segment nor an
intent names.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, now_us
from penstock.database.leases import repeating
from penstock.lake.tables import segment_intent

#: In the intent of a file that belongs to no partition.
NO_PARTITION = -1
_COLLECTOR = "collection"


def announce_file(
    database: Database, name: str, partition: int, owner: str, epoch: int | None = None
) -> None:
    """Say that a file of this name is about to be written."""
    announce_files(database, [name], partition, owner, epoch)


def announce_files(
    database: Database,
    names: Sequence[str],
    partition: int,
    owner: str,
    epoch: int | None = None,
) -> None:
    """The same for several."""
    if names:
        intent = {"partition": partition, "epoch": epoch, "owner": owner}
        insert = sa.insert(segment_intent).values(created_at=now_us())
        with database.write() as connection:
            connection.execute(insert, [{"name": name, **intent} for name in names])


def withdraw_intent(connection: Connection, name: str) -> bool:
    """The file is a segment now. False when collection has claimed it: it may be gone."""
    return withdraw_intents(connection, [name])


def withdraw_intents(connection: Connection, names: Sequence[str]) -> bool:
    """The same for several; False when one of them may be gone."""
    mine = (segment_intent.c.name.in_(names), segment_intent.c.claimed_at.is_(None))
    return connection.execute(sa.delete(segment_intent).where(*mine)).rowcount == len(names)


def intents_kept(database: Database, owner: str, grace_s: float) -> AbstractContextManager[None]:
    """While the block runs, collection leaves the owner's intents alone, however long it takes."""
    mine = sa.update(segment_intent).where(segment_intent.c.owner == owner)

    def renew() -> None:
        with database.write() as connection:
            connection.execute(mine.values(created_at=now_us()))

    return repeating(renew, max(grace_s / 3, 0.1), "intents")


def give_up_files(connection: Connection, names: Collection[str]) -> None:
    """Have collection delete these files of the store."""
    if names:
        rows = [{"name": name, "partition": NO_PARTITION, "owner": _COLLECTOR} for name in names]
        claimed = sa.insert(segment_intent).values(created_at=now_us(), claimed_at=now_us())
        connection.execute(claimed, rows)
