"""The tables of the audit."""

from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.backends.database.tables import metadata, name_columns

#: The newest entry of each tenant's chain. Whoever appends holds this row.
audit_chain = Table(
    "audit_chain",
    metadata,
    *name_columns("tenant", primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
)

#: What was done. Rows are only added, and each holds the hash of the one before.
audit_entry = Table(
    "audit_entry",
    metadata,
    #: Empty for what concerns the service and no tenant.
    *name_columns("tenant", primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)
