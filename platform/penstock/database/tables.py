"""What the tables of all rooms share, and the database's own: revisions and leases."""

from importlib.metadata import entry_points
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMES)

# SQLite numbers rows only in a column that is exactly INTEGER.
Number = BigInteger().with_variant(Integer, "sqlite")


def name_columns(*names: str, **options: Any) -> list[Column[str]]:
    """Columns of tenants, channels, checkpoints and the like, next to each other."""
    return [Column(name, String(128), **options) for name in names]


def all_tables() -> MetaData:
    """The tables of every room that is installed."""
    for entry in entry_points(group="penstock.tables"):
        entry.load()
    return metadata


#: The revisions whose code suits the database: see `migrations`.
supported_revision = Table(
    "supported_revision", metadata, Column("revision", String(32), primary_key=True)
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
