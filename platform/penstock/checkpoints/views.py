"""The views `checkpoints` and `benchmark_scores`, as of the moment of a query."""

import sqlalchemy as sa

from penstock.checkpoints.tables import (
    benchmark_attempt,
    benchmark_run,
    checkpoint,
    checkpoint_move,
    checkpoint_shard,
)
from penstock.lake.view_sources import ViewSources


def bind_views(sources: ViewSources, views: frozenset[str]) -> None:
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
