"""The fleet room."""

from typing import TYPE_CHECKING

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.registry.fleet.cli import fleet, follow

    return {"channels.follow": follow, "channels.fleet": fleet}


def settings() -> "list[type[RoomSettings]]":
    from penstock.registry.fleet.settings import FleetSettings

    return [FleetSettings]


def endpoints() -> Endpoints:
    from penstock.registry.fleet.replicas import ENDPOINTS

    return ENDPOINTS


ROOM = Room(
    package="penstock.registry.fleet",
    extra_commands=("channels.follow", "channels.fleet"),
    commands=commands,
    settings=settings,
    endpoints=endpoints,
)
