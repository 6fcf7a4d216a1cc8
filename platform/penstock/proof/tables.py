"""The table of what proofs say of shards."""

from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.database.tables import metadata

#: What a shard was when it was built, as proofs have it. It stays when the shard's files go.
shard_record = Table(
    "shard_record",
    metadata,
    Column("shard", String(80), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    #: JSON, without anybody's name.
    Column("document", Text, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
)
