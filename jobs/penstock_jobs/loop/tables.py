"""Tables of the loop: cycles and their stages.

`epoch` grows with each claim of a stage; results of older claims are dropped. Times are in
microseconds since 1970, by the database's clock.
"""

from sqlalchemy import BigInteger, Column, Integer, String, Table, Text

from penstock.backends.database.tables import metadata

#: One round from sessions to a checkpoint that serves, or to the reason why none does.
loop_cycle = Table(
    "loop_cycle",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("loop", String(128), primary_key=True),
    #: 1, 2, 3 without a gap; only the newest is open.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("channel", String(128), nullable=False),
    #: The digest of the loop file.
    Column("file_digest", String(80), nullable=False),
    Column("budget_s", BigInteger, nullable=False),
    #: The checkpoint that served at the start, and the new one.
    Column("parent", String(128)),
    Column("checkpoint", String(128)),
    #: promoted, refused, failed, rolled_back or over_budget; and why.
    Column("outcome", String(16)),
    Column("why", Text, nullable=False, default=""),
    Column("opened_at", BigInteger, nullable=False),
    #: When it stopped waiting: the budget counts from here.
    Column("began_at", BigInteger),
    Column("ended_at", BigInteger),
)

#: A stage of a cycle: its inputs, owner and result.
loop_stage = Table(
    "loop_stage",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("loop", String(128), primary_key=True),
    Column("cycle", BigInteger, primary_key=True, autoincrement=False),
    Column("stage", String(32), primary_key=True),
    Column("position", Integer, nullable=False),
    #: waiting, running, done, failed, or over: it ended the cycle.
    Column("state", String(16), nullable=False, default="waiting"),
    Column("epoch", BigInteger, nullable=False, default=0),
    Column("owner", String(128)),
    Column("lease_until", BigInteger, nullable=False, default=0),
    #: Failed tries with these inputs. Killed tries do not count.
    Column("failures", Integer, nullable=False, default=0),
    Column("not_before", BigInteger, nullable=False, default=0),
    #: What it waits for, or what went wrong.
    Column("why", Text, nullable=False, default=""),
    Column("inputs", Text),
    Column("inputs_digest", String(80)),
    Column("result", Text),
    #: Its first claim, its newest, and its end.
    Column("started_at", BigInteger),
    Column("tried_at", BigInteger),
    Column("ended_at", BigInteger),
)
