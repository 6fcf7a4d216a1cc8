"""The checkpoints room."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.registry.checkpoints import cli

    return {"checkpoints": cli.app}


def tables() -> list[ModuleType]:
    from penstock.registry.checkpoints import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.registry.checkpoints.artifact_roots import CheckpointSettings

    return [CheckpointSettings]


def endpoints() -> Endpoints:
    from penstock.registry.checkpoints import endpoints

    return endpoints.ENDPOINTS


def bind_views() -> Any:
    from penstock.registry.checkpoints.tables import bind_views

    return bind_views


def retention() -> Parts:
    from penstock.registry.checkpoints.attempts import ATTEMPTS

    return {"attempts": ATTEMPTS}


ROOM = Room(
    package="penstock.registry.checkpoints",
    summaries={"checkpoints": "Model versions: their digests, locations and lineage."},
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    views=("checkpoints", "benchmark_scores"),
    bind_views=bind_views,
    retention=retention,
)
