"""The room of the loop and its canaries."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.loop import cli
    from penstock_jobs.loop.hindsight.cli import hindsight

    return {"canary": cli.canary_app, "gate.hindsight": hindsight, "loop": cli.app}


def tables() -> list[ModuleType]:
    from penstock_jobs.loop import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock_jobs.loop import CanarySettings, LoopSettings

    return [CanarySettings, LoopSettings]


def endpoints() -> Endpoints:
    from penstock_jobs.loop import endpoints
    from penstock_jobs.loop.canary import look
    from penstock_jobs.loop.hindsight import hindsight

    return [*endpoints.ENDPOINTS, *look.ENDPOINTS, *hindsight.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.loop.canary import pages

    return [*pages.PAGES]


def proof() -> Parts:
    from penstock_jobs.loop.cycles import show_training

    return {"training": show_training}


def shard_uses() -> list[Any]:
    from penstock_jobs.loop.cycles import shard_uses

    return [shard_uses]


ROOM = Room(
    package="penstock_jobs.loop",
    summaries={
        "canary": "A checkpoint on part of the traffic: look at it, give it more, or take it back.",
        "loop": "From sessions to a checkpoint that serves, again and again, by a loop file.",
    },
    extra_commands=("gate.hindsight",),
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    pages=pages,
    proof=proof,
    shard_uses=shard_uses,
)
