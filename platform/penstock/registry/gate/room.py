"""The gate room."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.registry.gate",
    summaries={
        "Measure, promote, roll back": {
            "gate": "Decide whether a channel may point at a checkpoint."
        }
    },
    commands={"gate": "penstock.registry.gate.cli:app"},
    tables=items("penstock.registry.gate.tables"),
    endpoints=items("penstock.registry.gate.power:ENDPOINTS"),
)
