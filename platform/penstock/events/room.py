"""The room of events: the settings of redaction."""

from typing import TYPE_CHECKING

from penstock.core.room import Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def settings() -> "list[type[RoomSettings]]":
    from penstock.events.redaction.rules import RedactionSettings

    return [RedactionSettings]


ROOM = Room(package="penstock.events", settings=settings)
