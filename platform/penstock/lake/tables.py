"""The tables of the lake. A segment and the offsets that it covers change in one transaction; see
`lake.commits`. Times are microseconds since 1970 by the database's clock.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text

from penstock.database.tables import Number, metadata, run_once_made

#: A partition of the event log: how far the lake covers it, and who may move that on.
log_partition = Table(
    "log_partition",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("log_id", String(64), nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", String(64)),
    Column("lease_until", BigInteger, nullable=False),
)

#: Tenants that the lake covers further than their partition's `next_offset`: who reads the log
#: again from there passes over what they sent before an offset of their own.
tenant_offset = Table(
    "tenant_offset",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("tenant", String(128), primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Index("ix_tenant_offset_next", "partition", "next_offset"),
)

#: How many partitions a log has, as its writers have agreed. Sessions are where this says.
log_shape = Table(
    "log_shape",
    metadata,
    Column("log_id", String(64), primary_key=True),
    Column("partitions", Integer, nullable=False),
)

#: Writers that are there; they share the partitions fairly.
writer = Table(
    "writer",
    metadata,
    Column("owner", String(64), primary_key=True),
    Column("until", BigInteger, nullable=False),
)

#: Offsets that were lost to the log before the lake had them. Normally there are none.
log_gap = Table(
    "log_gap",
    metadata,
    Column("id", Number, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("log_id", String(64), nullable=False),
    Column("from_offset", BigInteger, nullable=False),
    Column("to_offset", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("found_at", BigInteger, nullable=False),
    #: A person has looked, and said why it can be lived with.
    Column("accepted_at", BigInteger),
    Column("accepted_why", Text),
)

#: Written before a file is. A file that neither a segment nor an intent names is not of a writer.
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

#: In the `info` of a table whose rows are files of the lake: their folder in the store. Such a row
#: has a file of sessions beside it, and is live from `added_snap` until before `removed_snap`.
FOLDER = "folder"

#: One immutable Parquet file of events, live from `added_snap` until before `removed_snap`.
segment = Table(
    "segment",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("log_id", String(64)),
    Column("from_offset", BigInteger),
    Column("to_offset", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("sessions_bytes", BigInteger, nullable=False),
    Column("sessions_sha256", String(64), nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("ts_min", BigInteger, nullable=False),
    Column("ts_max", BigInteger, nullable=False),
    #: Which sessions it holds: `lake.segments`.
    Column("session_filter", LargeBinary, nullable=False),
    Column("added_snap", BigInteger, nullable=False),
    Column("removed_snap", BigInteger),
    #: The shape of the log when its sessions were put where they are.
    Column("log_partitions", Integer, nullable=False),
    #: Of a merged segment: the newest commit that brought events which are in it now.
    Column("changed_snap", BigInteger),
    Column("tenant", String(128), nullable=False),
    Index("ix_segment_live", "removed_snap", "added_snap"),
    Index("ix_segment_tenant", "tenant", "removed_snap"),
    info={FOLDER: "events"},
)

#: The newest commit. One row; its lock puts commits in an order.
lake_head = Table(
    "lake_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("snap", BigInteger, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    #: Snaps below this cannot be read any more: their files were collected.
    Column("readable_from", BigInteger, nullable=False),
)
run_once_made(lake_head, "INSERT INTO lake_head VALUES (1, 0, 0, 0)")

#: Every commit, so that a time can be turned into a snap.
lake_commit = Table(
    "lake_commit",
    metadata,
    Column("snap", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    #: Since the oldest of its events came in; NULL where it has none.
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
    Column("snap", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)

#: Only where a session's consent became known, or stricter, after rows of it were written.
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
    Column("accepted", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("duplicate", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    #: Of the accepted events, as they were sent.
    Column("bytes", BigInteger, nullable=False),
    #: Taken out again, or dropped before they were stored.
    Column("erased", BigInteger, nullable=False),
    #: Dropped by recorders before they were sent.
    Column("dropped", BigInteger, nullable=False),
)

#: Sessions that go on with another one's work (compactions, subagents) or repeat it (forks,
#: resumes).
session_link = Table(
    "session_link",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("parent_session", String(512), nullable=False),
    Column("link", String(16), nullable=False),
    Index("ix_session_link_parent", "tenant", "parent_session"),
)

#: What becomes of a tenant's events with secrets or personal data, where that differs from the
#: settings; null is as they say.
tenant_redaction = Table(
    "tenant_redaction",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("secrets", String(16)),
    Column("personal", String(16)),
    Column("set_by", String(128), nullable=False),
    Column("set_at", BigInteger, nullable=False),
)

#: How often redaction rules had a match, by the hour in which the lines came in.
redaction_count = Table(
    "redaction_count",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("source", String(512), primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    Column("rule", String(64), primary_key=True),
    Column("matches", BigInteger, nullable=False),
)

#: Sessions in which something was masked, and since which moment of theirs: what a call read from
#: then on decodes to it.
masked_session = Table(
    "masked_session",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("since_us", BigInteger, nullable=False),
)
