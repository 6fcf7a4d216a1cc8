"""The gate room."""

from types import ModuleType

from penstock.core.room import Commands, Endpoints, Room


def commands() -> Commands:
    from penstock.registry.gate import cli

    return {"gate": cli.app}


def tables() -> list[ModuleType]:
    from penstock.registry.gate import tables

    return [tables]


def endpoints() -> Endpoints:
    from penstock.registry.gate.power import ENDPOINTS

    return ENDPOINTS


ROOM = Room(
    package="penstock.registry.gate",
    summaries={"gate": "Decide whether a channel may point at a checkpoint."},
    commands=commands,
    tables=tables,
    endpoints=endpoints,
)
