"""The proof room."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock.registry.proof",
    summaries={
        "prove": "Prove what a checkpoint went through, with a document that anyone can verify."
    },
    commands=parts({"prove": "penstock.registry.proof.cli:prove"}),
    endpoints=items("penstock.registry.proof.cli:ENDPOINTS"),
)
