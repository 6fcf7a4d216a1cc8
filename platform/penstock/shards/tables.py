"""The tables of shards, of their files, and of marks on their sessions."""

from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Index, LargeBinary, String, Table, Text

from penstock.backends.database.tables import metadata, name_columns

#: A finished shard. Its manifest, whose digest is its id, is in the store.
shard = Table(
    "shard",
    metadata,
    Column("id", String(80), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    *name_columns("name", nullable=False),
    #: The snap that it was built from, and the snapshot that keeps it readable.
    Column("snap", BigInteger, nullable=False),
    Column("snapshot", String(128), nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("trainable", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    #: Its sessions, as a filter of `lake.filters`.
    Column("session_filter", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("added_snap", BigInteger, nullable=False),
    #: Once files are gone or going: `dropping`, `dropped` or `erased`, since when, and why.
    Column("gone", String(16)),
    Column("gone_at", BigInteger),
    Column("gone_why", Text),
    #: Its facts for proofs, as JSON without names; kept when the files go.
    Column("record", Text, nullable=False),
    Index("ix_shard_name", "tenant", "name"),
)

shard_file = Table(
    "shard_file",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("shard", String(80), nullable=False),
    Column("tenant", String(128), nullable=False),
    Index("ix_shard_file_shard", "shard", "tenant"),
)


def _sessions(name: str, reason_length: int, *more: Column[Any]) -> Table:
    """Sessions of a shard, each with a reason."""
    lengths = {"shard": 80, "tenant": 128, "session_id": 512, "reason": reason_length}
    keys = (Column(key, String(length), primary_key=True) for key, length in lengths.items())
    return Table(name, metadata, *keys, *more)


#: States of a shard without files. `erased` is also the reason of a mark: it held an erased
#: session, named by its digest.
DROPPING, DROPPED, ERASED = "dropping", "dropped", "erased"

#: Marks: sessions of a shard that were erased or lost their consent.
shard_mark = _sessions("shard_mark", 32, Column("marked_at", BigInteger, nullable=False))

#: Example sessions that a query named but the shard left out, a few per reason. The manifest has
#: the counts.
shard_left_out = _sessions("shard_left_out", 64)


def of_shard(table: Table, tenant: str, shard_id: str) -> ColumnElement[bool]:
    own = table.c.id if table is shard else table.c.shard
    return (table.c.tenant == tenant) & (own == shard_id)
