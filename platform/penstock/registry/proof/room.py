"""What proofs bring."""

from penstock.core.room import Commands, Endpoints, Room


def commands() -> Commands:
    from penstock.registry.proof.cli import prove

    return {"prove": prove}


def endpoints() -> Endpoints:
    from penstock.registry.proof import endpoints

    return endpoints.ENDPOINTS


ROOM = Room(
    package="penstock.registry.proof",
    summaries={
        "prove": "Prove what a checkpoint went through, by a signed document anyone can verify."
    },
    commands=commands,
    endpoints=endpoints,
)
