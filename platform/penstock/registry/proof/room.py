"""The proof room."""

from penstock.core.room import Commands, Endpoints, Room


def commands() -> Commands:
    from penstock.registry.proof.cli import prove

    return {"prove": prove}


def endpoints() -> Endpoints:
    from penstock.registry.proof.cli import ENDPOINTS

    return ENDPOINTS


ROOM = Room(
    package="penstock.registry.proof",
    summaries={
        "prove": "Prove what a checkpoint went through, with a document that anyone can verify."
    },
    commands=commands,
    endpoints=endpoints,
)
