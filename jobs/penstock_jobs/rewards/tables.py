"""Tables of rewards: definitions, files, due sessions, judges' answers, and labels."""

from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, Text

from penstock.backends.database.tables import metadata
from penstock.lake.tables import FOLDER

reward_definition = Table(
    "reward_definition",
    metadata,
    Column("version", String(64), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("text", Text, nullable=False),
    Column("listed", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: Sessions that changed up to this commit are done, except those left out by age.
    Column("through_snap", BigInteger, nullable=False),
    Column("run_at", BigInteger, nullable=False),
    Column("through_decision", BigInteger, nullable=False, server_default="0"),
)

#: A file of rewards and one of outcomes: of some sessions, as of one moment.
reward_file = Table(
    "reward_file",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("definition_version", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("sessions", BigInteger, nullable=False),
    Column("sessions_bytes", BigInteger, nullable=False),
    Column("sessions_sha256", String(64), nullable=False),
    #: The newest commit whose events were used.
    Column("lake_snap", BigInteger, nullable=False),
    Column("added_snap", BigInteger, nullable=False),
    Column("removed_snap", BigInteger),
    Column("tenant", String(128), nullable=False),
    Index("ix_reward_file_live", "definition_version", "removed_snap"),
    Index("ix_reward_file_tenant", "tenant", "removed_snap"),
    info={FOLDER: "rewards"},
)

#: Sessions whose rewards will change with time alone, or that are going on, and when.
reward_due = Table(
    "reward_due",
    metadata,
    Column("definition_version", String(64), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("session_id", String(512), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
    #: The time of that computation: an older one does not replace a newer one.
    Column("computed_at", BigInteger, nullable=False),
    Index("ix_reward_due_at", "definition_version", "due_at"),
)

#: Answers of a language model, by a digest of all that an answer depends on. Judgements hold no
#: text of a user; hints that a model wrote name their session, and are erased with it.
judge_answer = Table(
    "judge_answer",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("answer", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("tenant", String(128)),
    Column("session_id", String(512)),
    Index("ix_judge_answer_session", "tenant", "session_id"),
)

judge_spending = Table(
    "judge_spending",
    metadata,
    Column("run", String(128), primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
)

#: Labels of messages by people and language models. Rows are only added: the newest row of a
#: message counts, people's before models'; a row without a label undoes the previous one. They hold
#: no text of a user.
follow_up_label = Table(
    "follow_up_label",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("session_id", String(512), nullable=False),
    Column("turn", BigInteger, nullable=False),
    #: The digest of the text, by which the label finds the message if its turn changes.
    Column("message", String(64), nullable=False),
    Column("label", String(32)),
    #: Whether the message was drawn at random; else it decides the request of one that was.
    Column("drawn", Boolean, nullable=False),
    #: Whether the message had a label before, and was asked again to see how sure labels are.
    Column("again", Boolean, nullable=False),
    #: The draw covered messages of sessions that ended by this time.
    Column("until_us", BigInteger, nullable=False),
    Column("by", String(128), nullable=False),
    Column("is_model", Boolean, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_follow_up_label_session", "tenant", "session_id"),
)
