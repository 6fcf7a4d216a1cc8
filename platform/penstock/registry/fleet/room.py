"""The fleet room."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.registry.fleet",
    commands={
        "channels.follow": "penstock.registry.fleet.cli:follow",
        "channels.fleet": "penstock.registry.fleet.cli:fleet",
    },
    settings=items("penstock.registry.fleet:FleetSettings"),
    endpoints=items("penstock.registry.fleet.replicas:ENDPOINTS"),
)
