"""The table of the console."""

from sqlalchemy import BigInteger, Column, String, Table

from penstock.backends.database.tables import metadata

#: Browsers that are signed in, each by a hash of what its cookie holds.
console_session = Table(
    "console_session",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("key_id", String(32), nullable=False),
    #: Who signed in by an OpenID provider, with the rights of that key.
    Column("person", String(200)),
    Column("created_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
)
