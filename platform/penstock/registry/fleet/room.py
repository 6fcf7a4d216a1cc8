"""The fleet room."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock.registry.fleet",
    extra_commands=("channels.follow", "channels.fleet"),
    commands=parts(
        {
            "channels.follow": "penstock.registry.fleet.cli:follow",
            "channels.fleet": "penstock.registry.fleet.cli:fleet",
        }
    ),
    settings=items("penstock.registry.fleet.settings:FleetSettings"),
    endpoints=items("penstock.registry.fleet.replicas:ENDPOINTS"),
)
