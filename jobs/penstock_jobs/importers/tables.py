"""The table of what was imported: of each source, how it was when it was read."""

from sqlalchemy import BigInteger, Column, LargeBinary, String, Table, Text

from penstock.backends.database.tables import metadata

imported_source = Table(
    "imported_source",
    metadata,
    Column("tenant", String(128), primary_key=True),
    #: Of the path without links: a path may be longer than an index has room for.
    Column("digest", String(32), primary_key=True),
    Column("path", Text, nullable=False),
    Column("format", String(128), nullable=False),
    #: It differs when the source has changed since; empty while its end is not taken yet.
    Column("mark", String(32), nullable=False),
    Column("imported_at", BigInteger, nullable=False),
    #: Of a large log: where reading stopped, and what its reader knew.
    Column("reading", LargeBinary),
)
