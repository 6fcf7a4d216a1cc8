"""The tables of keys and quotas."""

from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.backends.database.tables import metadata

#: Keys, as hashes.
api_key = Table(
    "api_key",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("note", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("expires_at", BigInteger),
)

#: What one tenant may use, where that differs from the settings.
tenant_quota = Table(
    "tenant_quota",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("maximum", BigInteger, nullable=False),
)
