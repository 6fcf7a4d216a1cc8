"""The room of benchmarks."""

from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.benchmarks import cli

    return {"bench": cli.app}


def settings() -> "list[type[RoomSettings]]":
    from penstock_jobs.benchmarks import BenchmarkSettings

    return [BenchmarkSettings]


def endpoints() -> Endpoints:
    from penstock_jobs.benchmarks import endpoints

    return endpoints.ENDPOINTS


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.benchmarks import pages

    return [*pages.PAGES]


ROOM = Room(
    package="penstock_jobs.benchmarks",
    summaries={"bench": "Run benchmarks in isolation, import results, compare checkpoints."},
    commands=commands,
    settings=settings,
    endpoints=endpoints,
    pages=pages,
)
