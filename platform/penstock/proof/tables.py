"""The table of what proofs say of shards."""

from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.database.tables import metadata, name_columns

#: What a shard was when it was built, as proofs have it. It stays when the shard's files go.
shard_record = Table(
    "shard_record",
    metadata,
    Column("shard", String(80), primary_key=True),
    *name_columns("tenant", nullable=False),
    #: JSON, without anybody's name.
    Column("document", Text, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
)
