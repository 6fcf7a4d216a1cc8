"""The room of outside systems: their settings and tables."""

from types import ModuleType
from typing import TYPE_CHECKING

from penstock.core.room import Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def tables() -> list[ModuleType]:
    from penstock.backends.audit import chain, hash_chain
    from penstock.backends.database import tables

    return [tables, chain, hash_chain]


def settings() -> "list[type[RoomSettings]]":
    from penstock.backends.database import DatabaseSettings
    from penstock.backends.eventlog.log import EventLogSettings
    from penstock.backends.execution.executor import ExecutionSettings
    from penstock.backends.http.address import HttpSettings

    return [HttpSettings, DatabaseSettings, EventLogSettings, ExecutionSettings]


ROOM = Room(package="penstock.backends", tables=tables, settings=settings)
