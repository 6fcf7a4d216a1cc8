"""The table of data keys, each wrapped by the key service. Times are microseconds since 1970."""

from sqlalchemy import BigInteger, Column, Index, String, Table, Text

from penstock.database.tables import metadata

data_key = Table(
    "data_key",
    metadata,
    Column("id", String(16), primary_key=True),
    #: The folder of the tenant, as names of files have it; `LAKE` for files of no tenant's.
    Column("owner", String(128), nullable=False),
    Column("wrapped", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    #: Since then no new file is sealed with it.
    Column("retired_at", BigInteger),
    Index("ix_data_key_owner", "owner", "retired_at"),
)
