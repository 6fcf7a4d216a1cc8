"""The room of the doors: the server, the console and the proxy."""

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
    from penstock.doors.console import sign_in

    return [sign_in]


def settings() -> "list[type[RoomSettings]]":
    from penstock.doors.settings import ConsoleSettings, ServerSettings

    return [ServerSettings, ConsoleSettings]


def pages() -> "list[ConsolePage[Any]]":
    from penstock.doors.console import release_pages, service_pages

    return [*release_pages.PAGES, *service_pages.PAGES]


ROOM = Room(
    package="penstock.doors",
    summaries={
        "serve": "Take events in and answer queries, until SIGTERM or Ctrl-C.",
        "record": "Proxy a model's server and record the calls that pass, until SIGTERM.",
        "config": "Show every setting, its value and its origin.",
    },
    commands=commands,
    tables=tables,
    settings=settings,
    pages=pages,
)
