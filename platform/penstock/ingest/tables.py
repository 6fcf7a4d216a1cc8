"""The tables of rejected lines. The lines themselves are in files of the store."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from penstock.backends.database.tables import metadata

#: Rejected lines with their reasons, to examine and replay.
rejected = Table(
    "rejected",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("source", String(512), nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    #: Only the beginning was stored, so it cannot be replayed.
    Column("truncated", Boolean, nullable=False),
    Column("replayed_at", BigInteger),
    #: The reason without its variable parts.
    Column("kind", String(128), nullable=False),
    #: The number of lines that the row represents.
    Column("lines", BigInteger, nullable=False),
    #: Whether they had been acknowledged: then the file holds all of them, not only the first.
    Column("acknowledged", Boolean, nullable=False),
    #: The file of the store, the range of bytes, and their digest.
    Column("file", String(255), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("length", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Index("ix_rejected_received_at", "received_at"),
    Index("ix_rejected_tenant", "tenant", "source"),
    Index("ix_rejected_file", "file"),
)

#: Tripped fuses of sources with mostly rejected lines.
rejection_fuse = Table(
    "rejection_fuse",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("source", String(512), primary_key=True),
    Column("tripped_at", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)
