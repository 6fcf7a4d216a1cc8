"""The tables of the registry: checkpoints, what they scored, channels and their history.

Times are microseconds since 1970 by the database's clock. Rows of EVIDENCE are never changed or
deleted: the database itself refuses it.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from penstock.database.metadata import Number, metadata

EVIDENCE = frozenset({"benchmark_design", "channel_change", "checkpoint_move", "verdict"})

#: A model version. One digest has one name.
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("uri", Text, nullable=False),
    #: `whole`, or `delta` on the parent.
    Column("form", String(16), nullable=False),
    Column("parent", String(128)),
    Column("state", String(16), nullable=False),
    #: Whether its files had the digest: `verified`, or why nobody could look.
    Column("checked", String(16), nullable=False),
    Column("bytes", BigInteger),
    Column("note", Text, nullable=False),
    Column("registered_by", String(128), nullable=False),
    Column("registered_at", BigInteger, nullable=False),
    UniqueConstraint("tenant", "digest"),
)

#: The shards that a checkpoint was trained on, beyond those of its parents.
checkpoint_shard = Table(
    "checkpoint_shard",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("shard", String(80), primary_key=True),
    Index("ix_checkpoint_shard_shard", "tenant", "shard"),
)

#: Each step of a checkpoint from one state to the next.
checkpoint_move = Table(
    "checkpoint_move",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("checkpoint", String(128), nullable=False),
    Column("from_state", String(16)),
    Column("to_state", String(16), nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_checkpoint_move_checkpoint", "tenant", "checkpoint"),
)

#: A benchmark, by its content or by the name that an import gave it.
suite_version = Table(
    "suite_version",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("suite", String(128), primary_key=True),
    Column("version", String(80), primary_key=True),
    #: Its tasks with their tags, as JSON.
    Column("tasks", Text, nullable=False),
    #: By what its tasks are known in sessions, as JSON.
    Column("content", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

#: One run of a suite, or one import of results.
benchmark_run = Table(
    "benchmark_run",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("suite", String(128), nullable=False),
    Column("suite_version", String(80), nullable=False),
    Column("checkpoint", String(128), nullable=False),
    #: `run`, or the format of an import.
    Column("kind", String(32), nullable=False),
    #: Where an import came from, or the agent's command.
    Column("source", Text, nullable=False),
    #: How attempts were run, as JSON: what they could see and reach, and the limits of trying.
    Column("conditions", Text),
    #: What was found and could not be taken, or is to be said of attempts, as JSON.
    Column("problems", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Index("ix_benchmark_run_checkpoint", "tenant", "checkpoint", "suite"),
)

#: One attempt of a checkpoint at a task. Its score never changes; an error gives way to a score.
benchmark_attempt = Table(
    "benchmark_attempt",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("suite", String(128), primary_key=True),
    Column("suite_version", String(80), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("task", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("run", String(64), nullable=False),
    #: `scored`, or `error`: it says nothing about the model.
    Column("status", String(16), nullable=False),
    Column("score", Float),
    Column("error", Text),
    Column("completion_tokens", BigInteger),
    Column("prompt_tokens", BigInteger),
    Column("cost_usd", Float),
    Column("latency_s", Float),
    Column("steps", BigInteger),
    Column("tool_calls", BigInteger),
    Column("invalid_tool_calls", BigInteger),
    #: Whether it changed a file, and whether it asked the user something.
    Column("edited", Boolean),
    Column("asked", Boolean),
    #: How often it was tried again for reasons outside the model.
    Column("retries", Integer, nullable=False),
    Column("scored_at", BigInteger, nullable=False),
)

#: How a checkpoint's attempts at a suite were planned before the first one: where somebody looks,
#: and how strictly.
benchmark_design = Table(
    "benchmark_design",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("suite", String(128), primary_key=True),
    Column("suite_version", String(80), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("document", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)

#: What a live metric showed of two checkpoints, each time that somebody looked.
live_look = Table(
    "live_look",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("channel", String(128), nullable=False),
    #: The change with which the comparison began.
    Column("since_version", BigInteger, nullable=False),
    Column("candidate", String(128), nullable=False),
    Column("incumbent", String(128), nullable=False),
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
    Column("channel", String(128), nullable=False),
    Column("checkpoint", String(128), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("document", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Index("ix_verdict_checkpoint", "tenant", "checkpoint"),
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

#: A name that the serving fleet watches: the newest row of its history, to be read at once.
channel = Table(
    "channel",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

#: The history of channels. Each row holds the channel's whole state after a change, and the hash of
#: the row before.
channel_change = Table(
    "channel_change",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("channel", String(128), primary_key=True),
    #: 1, 2, 3 without a gap.
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    #: `promote`, `rollback`, `canary`, `release`, `policy`.
    Column("action", String(16), nullable=False),
    Column("checkpoint", String(128)),
    Column("digest", String(80)),
    Column("previous", String(128)),
    Column("canary", String(128)),
    Column("canary_share", Float),
    #: Rolled back: nothing is promoted until a person releases the channel.
    Column("pinned", Boolean, nullable=False),
    Column("policy", String(80)),
    Column("verdict", String(80)),
    #: Somebody promoted without a PASS.
    Column("overridden", Boolean, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)

#: The outbox: written with the change, deleted never; who has seen it is in `delivery`.
notice = Table(
    "notice",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("channel", String(128), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("tenant", "channel", "version"),
)

#: An address that is told of each change, of one channel or of all.
webhook = Table(
    "webhook",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("channel", String(128)),
    Column("url", Text, nullable=False),
    #: What its messages are signed with.
    Column("secret", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("removed_at", BigInteger),
)

#: How far somebody has been told of a channel's changes.
delivery = Table(
    "delivery",
    metadata,
    #: `webhook:ID` or `kafka`.
    Column("target", String(64), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("channel", String(128), primary_key=True),
    #: All before this version was delivered.
    Column("next_version", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("try_at", BigInteger, nullable=False),
    Column("problem", Text),
)

#: What serves a channel's traffic, as its sidecar said at last.
replica = Table(
    "replica",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("channel", String(128), primary_key=True),
    Column("replica", String(128), primary_key=True),
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
