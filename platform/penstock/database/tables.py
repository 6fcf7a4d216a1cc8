"""What the database says of itself: revisions and leases. Each room has its own `tables.py`."""

from sqlalchemy import (
    BigInteger,
    Column,
    String,
    Table,
)

from penstock.database.metadata import metadata

#: The revisions whose code the database suits: see `database.upgrade`.
supported_revision = Table(
    "supported_revision",
    metadata,
    Column("revision", String(32), primary_key=True),
)


#: Work that only one process may do at a time, by name.
lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64)),
    Column("epoch", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)
