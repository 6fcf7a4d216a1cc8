"""What a proof says of consent that was taken back: the sessions that shards hold, and should hold
no more, by their digests."""

from typing import Any

import sqlalchemy as sa

from penstock.proof.session_leaves import SessionDigests
from penstock.proof.subject import ProofSubject
from penstock.sealed_texts import SecretSeal
from penstock.shards.tables import ERASED, shard_mark
from penstock.terminal.output import time_of
from penstock_jobs.shards.registration import mark_consent

#: Of one shard and reason; the count says how many there are.
_DIGESTS_MAX = 1_000


def show_withdrawn(subject: ProofSubject) -> list[dict[str, Any]]:
    mark_consent(subject.lake)
    columns = shard_mark.c
    query = sa.select(columns.shard, columns.reason, columns.session_id, columns.marked_at)
    query = query.where(columns.tenant == subject.tenant, columns.reason != ERASED)
    query = query.where(columns.shard.in_(subject.shards))
    with subject.lake.database.read() as connection:
        marks = connection.execute(query.order_by(*query.selected_columns)).all()
    groups: dict[tuple[str, str], list[Any]] = {}
    for mark in marks:
        groups.setdefault((mark.shard, mark.reason), []).append(mark)
    return [_show_group(subject, *place, group) for place, group in groups.items()]


def _show_group(subject: ProofSubject, shard: str, reason: str, marks: list[Any]) -> dict[str, Any]:
    digests = SessionDigests.of(SecretSeal.of(subject.lake.settings), subject.tenant, shard)
    named = sorted(digests.digest(mark.session_id).hex() for mark in marks)
    return {
        "shard": shard,
        "reason": reason,
        "sessions": len(marks),
        "digests": named[:_DIGESTS_MAX],
        "since": time_of(min(mark.marked_at for mark in marks)).isoformat(),
    }
