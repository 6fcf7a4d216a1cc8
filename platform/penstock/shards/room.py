"""The shards room: the format, readers and views."""

from functools import partial

from penstock.core.room import Room, items, load, parts

ROOM = Room(
    package="penstock.shards",
    tables=items("penstock.shards.tables"),
    settings=items("penstock.shards.shard:ShardSettings"),
    endpoints=items("penstock.shards.endpoints:ENDPOINTS"),
    views=("shards", "samples"),
    bind_views=partial(load, "penstock.shards.registered_shards:bind_views"),
    upkeep=parts({"shards": "penstock.shards.registered_shards:finish_drops"}),
)
