"""The tables of keys and quotas."""

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, Text

from penstock.backends.database.tables import metadata

#: Keys, as hashes.
api_key = Table(
    "api_key",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("note", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("expires_at", BigInteger),
)

#: A tenant's own quotas.
tenant_quota = Table(
    "tenant_quota",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("maximum", BigInteger, nullable=False),
)


OPEN, DONE = "open", "done"

#: An erasure. While `open` it can be resumed; later only its report is left.
erasure = Table(
    "erasure",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(128), nullable=False),
    #: `user`, `session`, `project`, `tenant`.
    Column("kind", String(16), nullable=False),
    #: The erased name; empty once done, when the report holds a digest.
    Column("value", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_by", String(128), nullable=False),
    #: Later events are not erased.
    Column("until_us", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    #: What each step removed, as JSON.
    Column("progress", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    #: The signed report.
    Column("report", Text),
    Index("ix_erasure_state", "state"),
)

#: The sessions of an open erasure; emptied at its end.
erasure_session = Table(
    "erasure_session",
    metadata,
    Column("erasure", String(32), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    #: Of a session of somebody else, when it named the erased first; null for a whole session.
    Column("named_us", BigInteger),
)

#: Keyed digests of erased things, whose events are dropped before they are stored.
tombstone = Table(
    "tombstone",
    metadata,
    #: Ascending, so readers know whether there are newer ones.
    Column("id", BigInteger, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    #: Only events up to this time; null for all events.
    Column("until_us", BigInteger),
    Column("erasure", String(32), nullable=False),
    sa.UniqueConstraint("tenant", "kind", "digest", "erasure"),
)

#: Decisions on the consent of users, projects and sessions. Rows never change: the newest one of a
#: subject holds.
consent_decision = Table(
    "consent_decision",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant", String(128), nullable=False),
    #: `user`, `project`, `session`.
    Column("kind", String(16), nullable=False),
    #: Its name in events.
    Column("subject", String(512), nullable=False),
    #: `train`, `no_train` or `unknown`, which withdraws a decision.
    Column("consent", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("decided_by", String(128), nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Index("ix_consent_decision_subject", "tenant", "kind", "subject"),
)

#: How long a kind of data is kept. An empty tenant means all without their own rule; a null age
#: means for ever.
retention_rule = Table(
    "retention_rule",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("age_s", BigInteger),
    #: Whether what snapshots see is removed too.
    Column("breaks_snapshots", Boolean, nullable=False),
    Column("set_by", String(128), nullable=False),
    Column("set_at", BigInteger, nullable=False),
)

#: The newest run for a tenant and kind: its end, and its result as JSON.
retention_run = Table(
    "retention_run",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
)
