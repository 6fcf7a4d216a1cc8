"""The tables of checkpoints: model versions, their states, suites, and their scores."""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, String, Table, Text

from penstock.backends.audit.hash_chain import link_columns
from penstock.backends.database.tables import keep_rows, metadata, name_columns

if TYPE_CHECKING:
    from penstock.lake.query.view_sources import ViewSources

#: A model version. One digest has one name.
checkpoint = Table(
    "checkpoint",
    metadata,
    *name_columns("tenant", "name", primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("uri", Text, nullable=False),
    Column("form", String(16), nullable=False),
    Column("parent", String(128)),
    Column("state", String(16), nullable=False),
    #: Whether its files had the digest: `verified`, or why they were not read.
    Column("checked", String(16), nullable=False),
    Column("bytes", BigInteger),
    Column("note", Text, nullable=False),
    Column("registered_by", String(128), nullable=False),
    Column("registered_at", BigInteger, nullable=False),
    sa.UniqueConstraint("tenant", "digest"),
)

#: The shards that a checkpoint was trained on, beyond those of its parents.
checkpoint_shard = Table(
    "checkpoint_shard",
    metadata,
    *name_columns("tenant", "checkpoint", primary_key=True),
    Column("shard", String(80), primary_key=True),
    Index("ix_checkpoint_shard_shard", "tenant", "shard"),
)

checkpoint_move = Table(
    "checkpoint_move",
    metadata,
    Column("id", BigInteger, primary_key=True),
    *name_columns("tenant", "checkpoint", nullable=False),
    Column("from_state", String(16)),
    Column("to_state", String(16), nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_checkpoint_move_checkpoint", "tenant", "checkpoint"),
)
keep_rows(checkpoint_move)

#: A benchmark, by its content or by the name that an import gave it.
suite_version = Table(
    "suite_version",
    metadata,
    *name_columns("tenant", "suite", primary_key=True),
    Column("version", String(80), primary_key=True),
    #: Its tasks with their tags, as JSON.
    Column("tasks", Text, nullable=False),
    #: The content that identifies its tasks in sessions, as JSON.
    Column("content", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

#: One run of a suite, or one import of results.
benchmark_run = Table(
    "benchmark_run",
    metadata,
    Column("id", String(64), primary_key=True),
    *name_columns("tenant", "suite", nullable=False),
    Column("suite_version", String(80), nullable=False),
    Column("checkpoint", String(128), nullable=False),
    Column("kind", String(32), nullable=False),
    #: The source of an import, or the agent's command.
    Column("source", Text, nullable=False),
    #: The conditions of attempts, as JSON: isolation, network, and limits.
    Column("conditions", Text),
    #: Problems with results or attempts, as JSON.
    Column("problems", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Index("ix_benchmark_run_checkpoint", "tenant", "checkpoint", "suite"),
)

#: One attempt of a checkpoint at a task. Its score never changes; an error gives way to a score.
benchmark_attempt = Table(
    "benchmark_attempt",
    metadata,
    *name_columns("tenant", "suite", primary_key=True),
    Column("suite_version", String(80), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("task", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("run", String(64), nullable=False),
    #: `scored`, or `error`, which says nothing about the model.
    Column("status", String(16), nullable=False),
    Column("score", Float),
    Column("error", Text),
    *(Column(name, BigInteger) for name in ("completion_tokens", "prompt_tokens")),
    *(Column(name, Float) for name in ("cost_usd", "latency_s")),
    *(Column(name, BigInteger) for name in ("steps", "tool_calls", "invalid_tool_calls")),
    Column("edited", Boolean),
    Column("asked", Boolean),
    Column("bits_per_byte", Float),
    #: How often it was retried for reasons outside of the model.
    Column("retries", Integer, nullable=False),
    Column("scored_at", BigInteger, nullable=False),
    Column("trial", String(64)),
    Column("audit", Text),
)

#: The journal. Entries of a suite itself have an empty version and checkpoint.
benchmark_journal = Table(
    "benchmark_journal",
    metadata,
    *name_columns("tenant", "suite", primary_key=True),
    Column("suite_version", String(80), primary_key=True),
    Column("checkpoint", String(128), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("document", Text, nullable=False),
    *link_columns(),
)
keep_rows(benchmark_journal)

#: Outputs of failed attempts, by the digests in runs and the journal.
attempt_output = Table(
    "attempt_output",
    metadata,
    *name_columns("tenant", primary_key=True),
    Column("digest", String(80), primary_key=True),
    Column("text", Text, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
)


def bind_views(sources: "ViewSources", views: frozenset[str]) -> None:
    """Bind the views `checkpoints` and `benchmark_scores`, as of the time of a query."""
    if "checkpoints" in views:
        moves = checkpoint_move.c
        moved_to = (
            sa.select(moves.to_state)
            .where(moves.tenant == sources.tenant, moves.checkpoint == checkpoint.c.name)
            .where(sources.known(moves.at))
            .order_by(moves.id.desc())
            .limit(1)
            .scalar_subquery()
        )
        known = checkpoint.c.tenant == sources.tenant, sources.known(checkpoint.c.registered_at)
        query = sa.select(*checkpoint.c, moved_to.label("moved_to")).where(*known)
        query = query.order_by(checkpoint.c.registered_at, checkpoint.c.name)
        sources.bind_query("checkpoint_list", query)
        trained = checkpoint_shard.c  # known with the checkpoint, and never changed
        shards = sa.select(trained.checkpoint, trained.shard)
        sources.bind_query("checkpoint_shards", shards.where(trained.tenant == sources.tenant))
    if "benchmark_scores" in views:
        attempt = benchmark_attempt.c
        order = ("checkpoint", "suite", "suite_version", "task", "attempt")
        own = attempt.tenant == sources.tenant, sources.known(attempt.scored_at)
        attempts = sa.select(benchmark_attempt).where(*own)
        sources.bind_query("attempt_list", attempts.order_by(*(attempt[name] for name in order)))
        run = benchmark_run.c
        runs = sa.select(run.id, run.conditions).where(run.tenant == sources.tenant)
        sources.bind_query("run_list", runs)
