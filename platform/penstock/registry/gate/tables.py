"""The tables of the gate: policies, looks at live metrics, verdicts and approvals."""

from sqlalchemy import BigInteger, Column, Index, String, Table, Text

from penstock.backends.database.tables import keep_rows, metadata, name_columns

#: Looks at live metrics of two checkpoints.
live_look = Table(
    "live_look",
    metadata,
    Column("id", BigInteger, primary_key=True),
    *name_columns("tenant", "channel", nullable=False),
    #: The channel version at which the comparison started.
    Column("since_version", BigInteger, nullable=False),
    *name_columns("candidate", "incumbent", nullable=False),
    Column("document", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_live_look_channel", "tenant", "channel", "since_version"),
)

#: Verdicts; the id is the digest of the document.
verdict = Table(
    "verdict",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("id", String(80), primary_key=True),
    *name_columns("channel", "checkpoint", nullable=False),
    Column("document", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Index("ix_verdict_checkpoint", "tenant", "checkpoint"),
)
keep_rows(verdict)

#: Approvals of a checkpoint for a channel, one per person; a repetition renews it.
approval = Table(
    "approval",
    metadata,
    *name_columns("tenant", "channel", "checkpoint", primary_key=True),
    Column("actor", String(128), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

#: Gate policies by their digests.
gate_policy = Table(
    "gate_policy",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(80), primary_key=True),
    Column("text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
