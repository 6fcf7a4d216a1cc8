"""What the doors bring: the server, the console and the proxy."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock.doors.proxy.cli import record
    from penstock.doors.server.cli import config, serve

    return {"serve": serve, "record": record, "config": config}


def tables() -> list[ModuleType]:
    from penstock.doors.console import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.doors.console.settings import ConsoleSettings
    from penstock.doors.server.settings import ServerSettings

    return [ServerSettings, ConsoleSettings]


def pages() -> "list[ConsolePage[Any]]":
    from penstock.doors.console import query_pages, release_pages, service_pages

    return [*release_pages.PAGES, *query_pages.PAGES, *service_pages.PAGES]


ROOM = Room(
    package="penstock.doors",
    summaries={
        "serve": "Take events in and answer queries, until SIGTERM or Ctrl-C.",
        "record": "Pass agents' requests on to a model's server and record them, until SIGTERM.",
        "config": "Every setting, its value and where it came from.",
    },
    commands=commands,
    tables=tables,
    settings=settings,
    pages=pages,
)
