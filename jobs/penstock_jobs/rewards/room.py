"""The room of rewards."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.rewards import cli

    return {"rewards": cli.app}


def tables() -> list[ModuleType]:
    from penstock_jobs.rewards import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock_jobs.rewards import RewardSettings

    return [RewardSettings]


def endpoints() -> Endpoints:
    from penstock_jobs.rewards import endpoints
    from penstock_jobs.rewards.followups import label_endpoints

    return [*endpoints.ENDPOINTS, *label_endpoints.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.rewards import pages

    return [*pages.PAGES]


def bind_views() -> Any:
    from penstock_jobs.rewards.reward_files import bind_views

    return bind_views


def erasure() -> Parts:
    from penstock_jobs.rewards.erasure import PART, RECORDS

    return {"rewards": PART, "reward_records": RECORDS}


def retention() -> Parts:
    from penstock_jobs.rewards.erasure import SUPERSEDED

    return {"superseded": SUPERSEDED}


ROOM = Room(
    package="penstock_jobs.rewards",
    summaries={"rewards": "What sessions were worth, by what users did next."},
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    pages=pages,
    views=("rewards", "outcomes", "requests", "labels"),
    bind_views=bind_views,
    erasure=erasure,
    retention=retention,
)
