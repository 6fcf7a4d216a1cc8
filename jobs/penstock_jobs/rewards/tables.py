"""The tables of rewards: definitions, files, what is due, and what judges said."""

from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, Text

from penstock.backends.database.tables import Number, metadata
from penstock.lake.tables import FOLDER

reward_definition = Table(
    "reward_definition",
    metadata,
    Column("version", String(64), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: Sessions that changed up to this commit are done, but for those left out by age.
    Column("through_snap", BigInteger, nullable=False),
    Column("run_at", BigInteger, nullable=False),
    Column("through_decision", BigInteger, nullable=False, server_default="0"),
)

#: A file of rewards and, beside it, one of outcomes: of some sessions, as of one moment.
reward_file = Table(
    "reward_file",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("definition_version", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("sessions", BigInteger, nullable=False),
    Column("sessions_bytes", BigInteger, nullable=False),
    Column("sessions_sha256", String(64), nullable=False),
    #: The newest commit whose events its sessions were computed from.
    Column("lake_snap", BigInteger, nullable=False),
    Column("added_snap", BigInteger, nullable=False),
    Column("removed_snap", BigInteger),
    Column("tenant", String(128), nullable=False),
    Index("ix_reward_file_live", "definition_version", "removed_snap"),
    Index("ix_reward_file_tenant", "tenant", "removed_snap"),
    info={FOLDER: "rewards"},
)

#: Sessions whose rewards will change with time alone, and when.
reward_due = Table(
    "reward_due",
    metadata,
    Column("definition_version", String(64), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
    #: As of when that was known: an older computation does not undo a newer one.
    Column("computed_at", BigInteger, nullable=False),
    Index("ix_reward_due_at", "definition_version", "due_at"),
)

#: The answers of a language model, by the digest of all that an answer depends on. No
#: text of a user is in it, so that erasing a session leaves nothing to erase here.
judge_answer = Table(
    "judge_answer",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("answer", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

judge_spending = Table(
    "judge_spending",
    metadata,
    Column("run", String(128), primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
)

#: What people and language models said of messages. Rows are only added: the newest about a
#: message counts, of people before models; one without a label takes back the one before. No text
#: of a user is in it.
follow_up_label = Table(
    "follow_up_label",
    metadata,
    Column("id", Number, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("session_id", String(512), nullable=False),
    Column("turn", BigInteger, nullable=False),
    #: The digest of its text: a label is of these words, whatever turn they are found at later.
    Column("message", String(64), nullable=False),
    Column("label", String(32)),
    #: Whether chance drew it, or it was chosen since it tells much.
    Column("drawn", Boolean, nullable=False),
    #: Chance drew from the messages of sessions that were quiet since then.
    Column("until_us", BigInteger, nullable=False),
    Column("by", String(128), nullable=False),
    Column("is_model", Boolean, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_follow_up_label_session", "tenant", "session_id"),
)
