"""The channels room."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.registry.channels import cli
    from penstock.registry.channels.promotion_cli import approve, check, lineage, promote, rollback

    return {
        "checkpoints.lineage": lineage,
        "gate.check": check,
        "gate.approve": approve,
        "promote": promote,
        "rollback": rollback,
        "channels": cli.app,
        "webhooks": cli.webhooks_app,
    }


def tables() -> list[ModuleType]:
    from penstock.registry.channels import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.registry.channels.settings import ChannelSettings

    return [ChannelSettings]


def endpoints() -> Endpoints:
    from penstock.registry.channels import endpoints, promotion_endpoints

    return [*endpoints.ENDPOINTS, *promotion_endpoints.ENDPOINTS]


def bind_views() -> Any:
    from penstock.registry.channels.history import bind_views

    return bind_views


def shard_uses() -> list[Any]:
    from penstock.registry.channels.history import shard_uses

    return [shard_uses]


def checks() -> list[Any]:
    from penstock.registry.channels.history import find_alterations

    return [find_alterations]


ROOM = Room(
    package="penstock.registry.channels",
    summaries={
        "promote": "Point a channel at a checkpoint that passes the gate.",
        "rollback": "Roll a channel back to the last good checkpoint, and pin it there.",
        "channels": "Channels of the serving fleet: each points at one checkpoint.",
        "webhooks": "Addresses that receive the changes of channels.",
    },
    extra_commands=("checkpoints.lineage", "gate.check", "gate.approve"),
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    views=("promotions",),
    bind_views=bind_views,
    shard_uses=shard_uses,
    checks=checks,
)
