"""The proof room."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.registry.proof",
    summaries={
        "Measure, promote, roll back": {
            "prove": "Prove what a checkpoint went through, with a document that anyone can verify."
        }
    },
    commands={"prove": "penstock.registry.proof.cli:prove"},
    endpoints=items("penstock.registry.proof.cli:ENDPOINTS"),
)
