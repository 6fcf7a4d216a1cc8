"""The tables of the lake. Times are microseconds since 1970 by the database's clock."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text

from penstock.backends.database.tables import metadata, required, run_once_made

#: How far the lake covers each partition of the event log, and which writer claims it.
log_partition = Table(
    "log_partition",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("log_id", String(64), nullable=False),
    *required(BigInteger, "next_offset", "epoch", "lease_until"),
    Column("owner", String(64)),
)

#: Tenants that the lake covers further than their partition's `next_offset`.
tenant_offset = Table(
    "tenant_offset",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("tenant", String(128), primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Index("ix_tenant_offset_next", "partition", "next_offset"),
)

#: How many partitions a log has; its writers agree on it here.
log_shape = Table(
    "log_shape",
    metadata,
    Column("log_id", String(64), primary_key=True),
    Column("partitions", Integer, nullable=False),
)

#: The running writers, which share the partitions evenly.
writer = Table(
    "writer",
    metadata,
    Column("owner", String(64), primary_key=True),
    Column("until", BigInteger, nullable=False),
)

#: Offsets that the log lost before the lake had them.
log_gap = Table(
    "log_gap",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("log_id", String(64), nullable=False),
    *required(BigInteger, "from_offset", "to_offset", "found_at"),
    Column("reason", Text, nullable=False),
    #: When a person accepted the gap, and why.
    Column("accepted_at", BigInteger),
    Column("accepted_why", Text),
)

#: Names of files that are about to be written, or to be deleted.
segment_intent = Table(
    "segment_intent",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("partition", Integer, nullable=False),
    #: The writer's epoch; null for a merge.
    Column("epoch", BigInteger),
    Column("owner", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: Set by collection: from then on the intent's owner cannot commit.
    Column("claimed_at", BigInteger),
)

#: The key in the `info` of a table of files for their folder in the store. Each file has a file of
#: sessions beside it, and is live from `added_snap` up to, but without, `removed_snap`.
FOLDER = "folder"

#: Immutable Parquet files of events.
segment = Table(
    "segment",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("log_id", String(64)),
    Column("from_offset", BigInteger),
    Column("to_offset", BigInteger),
    #: `log_partitions` is the number by which its sessions were placed.
    *required(Integer, "partition", "log_partitions", "schema_version"),
    *required(BigInteger, "rows", "bytes", "sessions_bytes", "ts_min", "ts_max", "added_snap"),
    *required(String(64), "sha256", "sessions_sha256"),
    #: Which sessions it holds: `lake.segments`.
    Column("session_filter", LargeBinary, nullable=False),
    Column("removed_snap", BigInteger),
    #: For a merged segment: the newest commit that brought events of it.
    Column("changed_snap", BigInteger),
    Index("ix_segment_live", "removed_snap", "added_snap"),
    Index("ix_segment_tenant", "tenant", "removed_snap"),
    info={FOLDER: "events"},
)

#: The newest commit, as one row. Commits lock it, so they come one after another.
lake_head = Table(
    "lake_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    #: Snaps below `readable_from` cannot be read any more: their files were collected.
    *required(BigInteger, "snap", "committed_at", "readable_from"),
)
run_once_made(lake_head, "INSERT INTO lake_head VALUES (1, 0, 0, 0)")

#: Every commit, so that a time can be turned into a snap.
lake_commit = Table(
    "lake_commit",
    metadata,
    Column("snap", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    #: How long its oldest event waited for it; null if it stored none.
    Column("waited_us", BigInteger),
    Index("ix_lake_commit_committed_at", "committed_at"),
)

#: A snap that a person named; its files are kept.
snapshot = Table(
    "snapshot",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("snap", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

#: A reader's claim on the files of a snap.
reader_lease = Table(
    "reader_lease",
    metadata,
    Column("id", String(64), primary_key=True),
    *required(BigInteger, "snap", "until"),
)

#: Consent that became known, or stricter, after rows of the session were written.
consent_change = Table(
    "consent_change",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("added_snap", BigInteger, primary_key=True, autoincrement=False),
    Column("consent", String(16), nullable=False),
)

#: What came in, per source and hour, counted in the commit that stored it.
ledger = Table(
    "ledger",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("source", String(512), primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    *required(BigInteger, "accepted", "stored", "duplicate", "rejected"),
    *required(BigInteger, "bytes", "erased", "dropped"),
)

#: Sessions that go on with another one's work (compactions, subagents) or repeat it (forks).
session_link = Table(
    "session_link",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("parent_session", String(512), nullable=False),
    Column("link", String(16), nullable=False),
    Index("ix_session_link_parent", "tenant", "parent_session"),
)

#: Redaction modes of a tenant; null means the settings.
tenant_redaction = Table(
    "tenant_redaction",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("secrets", String(16)),
    Column("personal", String(16)),
    Column("set_by", String(128), nullable=False),
    Column("set_at", BigInteger, nullable=False),
)

#: Matches of redaction rules, by the hour in which the lines came in.
redaction_count = Table(
    "redaction_count",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("source", String(512), primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    Column("rule", String(64), primary_key=True),
    Column("matches", BigInteger, nullable=False),
)

#: Sessions with masked text, and since when. Token ids of later calls would decode to that text.
masked_session = Table(
    "masked_session",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("since_us", BigInteger, nullable=False),
)
