"""The tables of shards: which there are, their files, and the marks on them."""

from sqlalchemy import BigInteger, Column, ColumnElement, Index, LargeBinary, String, Table, Text

from penstock.backends.database.tables import metadata, name_columns

#: A finished training shard. Its manifest, whose digest is its id, is in the store.
shard = Table(
    "shard",
    metadata,
    Column("id", String(80), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    *name_columns("name", nullable=False),
    #: The lake that it was built from, and the snapshot that keeps it readable.
    Column("snap", BigInteger, nullable=False),
    Column("snapshot", String(128), nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("trainable", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    #: Which sessions it holds: `lake.filters`.
    Column("session_filter", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("added_snap", BigInteger, nullable=False),
    #: Of one whose files are gone, or going: `dropping`, `dropped`, `erased`; since when, and why.
    Column("gone", String(16)),
    Column("gone_at", BigInteger),
    Column("gone_why", Text),
    #: What proofs say of it, as JSON without anybody's name; it stays when the files go.
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

#: What became of a shard without files. `erased` is also the reason of its marks: it held a session
#: that was erased, by whose digest it is marked.
DROPPING, DROPPED, ERASED = "dropping", "dropped", "erased"

#: A session that a shard holds, and should hold no more.
shard_mark = Table(
    "shard_mark",
    metadata,
    Column("shard", String(80), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("reason", String(32), primary_key=True),
    Column("marked_at", BigInteger, nullable=False),
)

#: Some of the sessions that a query named and a shard does not hold: a few of each reason, as
#: examples. The manifest has how many there are.
shard_left_out = Table(
    "shard_left_out",
    metadata,
    Column("shard", String(80), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("reason", String(64), primary_key=True),
)


def of_shard(table: Table, tenant: str, shard_id: str) -> ColumnElement[bool]:
    own = table.c.id if table is shard else table.c.shard
    return (table.c.tenant == tenant) & (own == shard_id)
