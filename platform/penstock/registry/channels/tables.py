"""The tables of channels: where each points, its history, and who is told of it."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, String, Table, Text

from penstock.backends.database.tables import keep_rows, metadata, name_columns

#: A name that the serving fleet watches: the newest row of its history, to be read at once.
channel = Table(
    "channel",
    metadata,
    *name_columns("tenant", "name", primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

#: The history of channels. Each row holds the channel's whole state after a change, and the hash of
#: the row before.
channel_change = Table(
    "channel_change",
    metadata,
    *name_columns("tenant", "channel", primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("action", String(16), nullable=False),
    Column("checkpoint", String(128)),
    Column("digest", String(80)),
    Column("previous", String(128)),
    Column("canary", String(128)),
    Column("canary_share", Float),
    Column("pinned", Boolean, nullable=False),
    Column("policy", String(80)),
    Column("verdict", String(80)),
    Column("overridden", Boolean, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)
keep_rows(channel_change)

#: An address that is told of each change, of one channel or of all.
webhook = Table(
    "webhook",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("channel", String(128)),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("removed_at", BigInteger),
)

#: How far somebody has been told of a channel's changes.
delivery = Table(
    "delivery",
    metadata,
    Column("target", String(64), primary_key=True),
    *name_columns("tenant", "channel", primary_key=True),
    Column("next_version", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("try_at", BigInteger, nullable=False),
    Column("problem", Text),
)
