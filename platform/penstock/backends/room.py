"""What the outside systems bring: their settings and tables."""

from types import ModuleType
from typing import TYPE_CHECKING

from penstock.core.room import Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def tables() -> list[ModuleType]:
    from penstock.backends.audit import tables as audit_tables
    from penstock.backends.database import tables

    return [tables, audit_tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.backends.database.settings import DatabaseSettings
    from penstock.backends.eventlog.settings import EventLogSettings
    from penstock.backends.execution.settings import ExecutionSettings
    from penstock.backends.http.egress import HttpSettings

    return [HttpSettings, DatabaseSettings, EventLogSettings, ExecutionSettings]


ROOM = Room(
    package="penstock.backends",
    tables=tables,
    settings=settings,
)
