"""What the gate brings."""

from types import ModuleType

from penstock.core.room import Commands, Endpoints, Room


def commands() -> Commands:
    from penstock.registry.gate import cli

    return {"gate": cli.app}


def tables() -> list[ModuleType]:
    from penstock.registry.gate import tables

    return [tables]


def endpoints() -> Endpoints:
    from penstock.registry.gate import endpoints

    return endpoints.ENDPOINTS


ROOM = Room(
    package="penstock.registry.gate",
    summaries={"gate": "What a checkpoint has to show before a channel may point at it."},
    commands=commands,
    tables=tables,
    endpoints=endpoints,
)
