"""Why a shard is still needed: a cycle that is under way trains on it."""

from collections.abc import Iterator

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock_jobs.loop.candidate import ShardStage
from penstock_jobs.loop.tables import loop_cycle, loop_stage


def shard_uses(connection: Connection, tenant: str, shard: str) -> Iterator[str]:
    cycle, stage = loop_cycle.c, loop_stage.c
    same = (stage.tenant == cycle.tenant) & (stage.loop == cycle.loop)
    under_way = (
        sa.select(stage.loop, stage.cycle, stage.result)
        .join(loop_cycle, same & (stage.cycle == cycle.number))
        .where(cycle.tenant == tenant, cycle.outcome.is_(None))
        .where(stage.stage == ShardStage.name, stage.result.is_not(None))
        .order_by(stage.loop, stage.cycle)
    )
    for row in connection.execute(under_way):
        if msgspec.json.decode(row.result).get("shard") == shard:
            yield f"cycle {row.cycle} of the loop {row.loop} is about it"
