"""What the fleet brings."""

from types import ModuleType
from typing import TYPE_CHECKING

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.registry.fleet.cli import fleet, follow

    return {"channels.follow": follow, "channels.fleet": fleet}


def tables() -> list[ModuleType]:
    from penstock.registry.fleet import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.registry.fleet.settings import FleetSettings

    return [FleetSettings]


def endpoints() -> Endpoints:
    from penstock.registry.fleet import endpoints

    return endpoints.ENDPOINTS


ROOM = Room(
    package="penstock.registry.fleet",
    joined=("channels.follow", "channels.fleet"),
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
)
