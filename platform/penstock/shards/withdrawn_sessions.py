"""Shards that hold sessions of which consent was withdrawn: whoever reads one is warned or refused,
as the operator says."""

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.privacy.consents import NO_TRAIN
from penstock.settings import Settings
from penstock.shards.errors import ShardWithdrawn
from penstock.shards.settings import REFUSE, ShardSettings
from penstock.shards.tables import shard_mark


def count_withdrawn(database: Database, tenant: str, shard_id: str) -> int:
    """How many of its sessions may not be trained on any more."""
    mine = (shard_mark.c.tenant == tenant, shard_mark.c.shard == shard_id)
    query = sa.select(sa.func.count(sa.distinct(shard_mark.c.session_id)))
    query = query.where(*mine, shard_mark.c.reason == NO_TRAIN)
    with database.read() as connection:
        return connection.scalar(query) or 0


def check_withdrawn(database: Database, settings: Settings, tenant: str, shard_id: str) -> int:
    """How many there are, where that may be read all the same. Raises ShardWithdrawn."""
    count = count_withdrawn(database, tenant, shard_id)
    if count and settings.room(ShardSettings).withdrawn_shards == REFUSE:
        raise ShardWithdrawn(shard=shard_id, sessions=count)
    return count
