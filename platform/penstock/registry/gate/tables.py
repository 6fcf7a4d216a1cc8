"""The tables of the gate: policies, designs of benchmarks, looks at live metrics, verdicts."""

from sqlalchemy import BigInteger, Column, Index, String, Table, Text

from penstock.backends.database.tables import Number, keep_rows, metadata, name_columns

#: How a checkpoint's attempts at a suite were planned before the first one: where somebody looks,
#: and how strictly.
benchmark_design = Table(
    "benchmark_design",
    metadata,
    *name_columns("tenant", "suite", primary_key=True),
    Column("suite_version", String(80), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("document", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)
keep_rows(benchmark_design)

#: What a live metric showed of two checkpoints, each time that somebody looked.
live_look = Table(
    "live_look",
    metadata,
    Column("id", Number, primary_key=True),
    *name_columns("tenant", "channel", nullable=False),
    #: The change with which the comparison began.
    Column("since_version", BigInteger, nullable=False),
    *name_columns("candidate", "incumbent", nullable=False),
    Column("document", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_live_look_channel", "tenant", "channel", "since_version"),
)

#: What the gate said, whole: its id is the digest of the document.
verdict = Table(
    "verdict",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("id", String(80), primary_key=True),
    *name_columns("channel", "checkpoint", nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("document", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Index("ix_verdict_checkpoint", "tenant", "checkpoint"),
)
keep_rows(verdict)

#: People who approved of a checkpoint for a channel, once each: a second time is newer.
approval = Table(
    "approval",
    metadata,
    *name_columns("tenant", "channel", "checkpoint", primary_key=True),
    Column("actor", String(128), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

#: A gate policy as it was written, by its digest.
gate_policy = Table(
    "gate_policy",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(80), primary_key=True),
    Column("text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
