"""The tables of privacy: erasures, tombstones, consent and retention."""

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, Text

from penstock.backends.database.tables import Number, metadata

OPEN, DONE = "open", "done"

#: An erasure. While it is `open` it can be taken up again; then only its report is left.
erasure = Table(
    "erasure",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(128), nullable=False),
    #: `user`, `session`, `project`, `tenant`.
    Column("kind", String(16), nullable=False),
    #: Whom it is about; empty once it is done: the report holds a digest.
    Column("value", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_by", String(128), nullable=False),
    #: Events of a later time are not meant.
    Column("until_us", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    #: What each step has removed, as JSON.
    Column("progress", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    #: The signed document.
    Column("report", Text),
    Index("ix_erasure_state", "state"),
)

#: The sessions that an open erasure reaches. Emptied at its end.
erasure_session = Table(
    "erasure_session",
    metadata,
    Column("erasure", String(32), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
)

#: What was erased, by keyed digests: events of it are dropped before they are stored.
tombstone = Table(
    "tombstone",
    metadata,
    #: It grows: who has read up to one of them knows when there are more.
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    #: Only events up to this time; null is all events, whenever.
    Column("until_us", BigInteger),
    Column("erasure", String(32), nullable=False),
    sa.UniqueConstraint("tenant", "kind", "digest", "erasure"),
)

#: What a user, a project or a session was decided to allow. Nothing is changed: the newest row of a
#: subject holds, and the others are its history.
consent_decision = Table(
    "consent_decision",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    #: `user`, `project`, `session`.
    Column("kind", String(16), nullable=False),
    #: Its name, as its events say it.
    Column("subject", String(512), nullable=False),
    #: `train`, `no_train`, `unknown`: the last takes a decision back.
    Column("consent", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("decided_by", String(128), nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Index("ix_consent_decision_subject", "tenant", "kind", "subject"),
)

#: How long a kind of data is kept. The tenant is empty in rules for all that have none of their
#: own; no age is for ever.
retention_rule = Table(
    "retention_rule",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("age_s", BigInteger),
    #: What snapshots see goes too.
    Column("breaks_snapshots", Boolean, nullable=False),
    Column("set_by", String(128), nullable=False),
    Column("set_at", BigInteger, nullable=False),
)

#: The newest run for a tenant and kind: when it ended, and what it did, as JSON.
retention_run = Table(
    "retention_run",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
)
