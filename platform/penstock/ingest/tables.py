"""Tables of rejected lines. The lines themselves lie in files of the store."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from penstock.backends.database.tables import Number, metadata

#: Lines that were refused, with the reason, for a person to look at and send again.
rejected = Table(
    "rejected",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("source", String(512), nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    #: Only the beginning was kept: such a line cannot be sent again.
    Column("truncated", Boolean, nullable=False),
    Column("replayed_at", BigInteger),
    #: The reason without what differs from line to line.
    Column("kind", String(128), nullable=False),
    #: How many lines of this kind the row stands for.
    Column("lines", BigInteger, nullable=False),
    #: They had been acknowledged: the file holds all of them, and not just the first.
    Column("acknowledged", Boolean, nullable=False),
    #: The file of the store, and which of its bytes.
    Column("file", String(255), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("length", Integer, nullable=False),
    Index("ix_rejected_received_at", "received_at"),
    Index("ix_rejected_tenant", "tenant", "source"),
    Index("ix_rejected_file", "file"),
)

#: Sources most of whose lines were rejected, until somebody has looked.
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
