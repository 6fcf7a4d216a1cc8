"""Why a shard is still needed: channels point at checkpoints that were trained on it."""

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.tables import benchmark_run, checkpoint_shard


def shard_uses(connection: Connection, tenant: str, shard: str) -> Iterator[str]:
    """Checkpoints that were trained on the shard itself count, and those above them do not."""
    columns = checkpoint_shard.c
    trained = sa.select(columns.checkpoint).where(columns.tenant == tenant, columns.shard == shard)
    names = set(connection.scalars(trained))
    if not names:
        return
    change = channel_change.c
    newest = (
        sa.select(change.channel, change.checkpoint, change.canary)
        .join(
            channel,
            (channel.c.tenant == change.tenant)
            & (channel.c.name == change.channel)
            & (channel.c.version == change.version),
        )
        .where(change.tenant == tenant)
        .order_by(change.channel)
    )
    for row in connection.execute(newest):
        for name in {row.checkpoint, row.canary} & names:
            yield f"the channel {row.channel} points at {name}, which was trained on it"
    runs = benchmark_run.c
    unfinished = sa.select(runs.suite, runs.checkpoint).where(
        runs.tenant == tenant, runs.finished_at.is_(None), runs.checkpoint.in_(sorted(names))
    )
    for suite, name in connection.execute(
        unfinished.distinct().order_by(runs.suite, runs.checkpoint)
    ):
        yield f"a run of {suite} with {name}, which was trained on it, has not ended"
