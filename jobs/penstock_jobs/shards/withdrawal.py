"""A change of mind, in what was built before: which shards hold sessions of whom it is about, and
which checkpoints learned from them. Shards keep their bytes, and get marks."""

from dataclasses import dataclass

from penstock.checkpoints.lineage import learners
from penstock.database.engine import clock_us
from penstock.lake.lake import Lake
from penstock.privacy.consents import NO_TRAIN, DecisionKind
from penstock.privacy.orders import ErasureScope
from penstock.privacy.reach import find_sessions
from penstock.shards.registered_shards import list_shards
from penstock_jobs.shards.registration import mark_denied, marked_sessions


@dataclass(frozen=True)
class WithdrawnShard:
    """A shard that holds sessions which may not be trained on any more: how many in all, whoever
    withdrew them, and the checkpoints that learned from it."""

    shard: str
    name: str
    sessions: int
    checkpoints: list[str]


@dataclass(frozen=True)
class Withdrawal:
    """How many sessions name whom it is about, and the shards that it newly marks."""

    sessions: int
    shards: list[WithdrawnShard]


def withdraw(lake: Lake, tenant: str, kind: DecisionKind, subject: str) -> Withdrawal:
    """Mark all shards that hold sessions of this subject. May be done again."""
    with lake.database.read() as connection:
        scope = ErasureScope(tenant, kind, subject, clock_us(connection))
    sessions = {each.session_id for found in find_sessions(lake, scope) for each in found}
    shards = list_shards(lake.database, tenant)
    before = {each.id: len(marked_sessions(lake.database, each.id, NO_TRAIN)) for each in shards}
    mark_denied(lake, tenant, sessions)
    withdrawn = []
    for each in shards:
        count = len(marked_sessions(lake.database, each.id, NO_TRAIN))
        if count > before[each.id]:
            trained = [learner.checkpoint for learner in learners(lake.database, tenant, each.id)]
            withdrawn.append(WithdrawnShard(each.id, each.name, count, trained))
    return Withdrawal(len(sessions), withdrawn)
