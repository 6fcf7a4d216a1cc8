"""What a proof says of consent that was taken back: how many sessions shards hold, and should hold
no more."""

from typing import Any

import sqlalchemy as sa

from penstock.channels.change import time_text
from penstock.proof.document import ProofSubject
from penstock.shards.tables import ERASED, shard_mark
from penstock_jobs.shards.registration import mark_consent


def show_withdrawn(subject: ProofSubject) -> list[dict[str, Any]]:
    mark_consent(subject.lake)
    columns = shard_mark.c
    place = (columns.shard, columns.reason)
    query = sa.select(*place, sa.func.count().label("sessions"), sa.func.min(columns.marked_at))
    query = query.where(columns.tenant == subject.tenant, columns.reason != ERASED)
    query = query.where(columns.shard.in_(subject.shards)).group_by(*place).order_by(*place)
    with subject.lake.database.read() as connection:
        return [
            {"shard": shard, "reason": reason, "sessions": count, "since": time_text(first)}
            for shard, reason, count, first in connection.execute(query)
        ]
