"""The table of replicas: what each engine of a fleet said that it has loaded."""

from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.backends.database.tables import metadata, name_columns

#: The replicas that serve channels, as their sidecars reported at last.
replica = Table(
    "replica",
    metadata,
    *name_columns("tenant", "channel", "replica", primary_key=True),
    #: `main`, or `canary`: which of the channel's two checkpoints it serves.
    Column("part", String(16), nullable=False),
    #: waiting, fetching, loading, loaded or failed.
    Column("state", String(16), nullable=False),
    #: The checkpoint that it is to load, of this version of the channel.
    Column("wanted", String(128)),
    Column("version", BigInteger, nullable=False),
    #: The one that it has loaded; none where nobody knows, as after a command that failed.
    Column("loaded", String(128)),
    Column("digest", String(80)),
    Column("problem", Text),
    #: Which sidecar said it: two of one name are a mistake.
    Column("sidecar", String(32), nullable=False),
    #: Since when it has loaded that one, is in that state, and when it was heard at last.
    Column("loaded_at", BigInteger),
    Column("since", BigInteger, nullable=False),
    Column("heard_at", BigInteger, nullable=False),
)
