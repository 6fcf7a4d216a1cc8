"""The room of benchmarks."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.benchmarks import cli, suites_cli

    return {"bench": cli.app, "suites": suites_cli.app}


def tables() -> list[ModuleType]:
    from penstock_jobs.benchmarks.mine import proposals

    return [proposals]


def erasure() -> Parts:
    from penstock_jobs.benchmarks.mine.proposals import PART

    return {"mined": PART}


def settings() -> "list[type[RoomSettings]]":
    from penstock_jobs.benchmarks import BenchmarkSettings

    return [BenchmarkSettings]


def endpoints() -> Endpoints:
    from penstock_jobs.benchmarks import endpoints
    from penstock_jobs.benchmarks.mine import endpoints as proposals

    return [*endpoints.ENDPOINTS, *proposals.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.benchmarks import pages

    return [*pages.PAGES]


ROOM = Room(
    package="penstock_jobs.benchmarks",
    summaries={
        "bench": "Run benchmarks in isolation, import results, compare checkpoints.",
        "suites": "Mine suites from repositories and sessions, review and check them.",
    },
    commands=commands,
    tables=tables,
    erasure=erasure,
    settings=settings,
    endpoints=endpoints,
    pages=pages,
)
