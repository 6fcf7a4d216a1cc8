"""The tables of channels: the newest version of each, their history, webhooks and deliveries."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, String, Table, Text

from penstock.backends.audit.hash_chain import chain_head, heads_in, link_columns
from penstock.backends.database.tables import keep_rows, metadata, name_columns

#: The history of channels. Each row holds the channel's state after a change, and the hash of the
#: row before.
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
    Column("checkpoint_version", BigInteger),
    Column("canary_version", BigInteger),
    Column("pinned", Boolean, nullable=False),
    Column("policy", String(80)),
    Column("verdict", String(80)),
    Column("overridden", Boolean, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    *link_columns(),
)
keep_rows(channel_change)

#: The channels, each with its newest version, for quick reads.
channel = (
    heads_in(channel_change)
    .with_only_columns(
        chain_head.c.tenant, chain_head.c.place.label("name"), chain_head.c.number.label("version")
    )
    .subquery("channel")
)

#: An address that receives each change of one channel, or of all.
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

#: How far a target has received a channel's changes.
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


#: The replicas of channels, with their latest reports.
replica = Table(
    "replica",
    metadata,
    *name_columns("tenant", "channel", "replica", primary_key=True),
    #: `main` or `canary`: the checkpoint of the channel that it serves.
    Column("part", String(16), nullable=False),
    #: waiting, fetching, loading, loaded or failed.
    Column("state", String(16), nullable=False),
    #: The checkpoint that it should load, and the number of its weights in the channel.
    Column("wanted", String(128)),
    Column("version", BigInteger, nullable=False),
    #: The checkpoint that it has loaded; null if unknown, as after a failed command.
    Column("loaded", String(128)),
    Column("digest", String(80)),
    Column("problem", Text),
    #: The id of the reporting sidecar: two with one name are a mistake.
    Column("sidecar", String(32), nullable=False),
    #: When it loaded the checkpoint, when its state began, and when it last reported.
    Column("loaded_at", BigInteger),
    Column("since", BigInteger, nullable=False),
    Column("heard_at", BigInteger, nullable=False),
)
