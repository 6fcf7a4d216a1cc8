"""The shards room: the format, readers and views."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def tables() -> list[ModuleType]:
    from penstock.shards import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.shards.shard import ShardSettings

    return [ShardSettings]


def endpoints() -> Endpoints:
    from penstock.shards import endpoints

    return endpoints.ENDPOINTS


def bind_views() -> Any:
    from penstock.shards.registered_shards import bind_views

    return bind_views


def upkeep() -> Parts:
    from penstock.shards.registered_shards import finish_drops

    return {"shards": finish_drops}


ROOM = Room(
    package="penstock.shards",
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    views=("shards", "samples"),
    bind_views=bind_views,
    upkeep=upkeep,
)
