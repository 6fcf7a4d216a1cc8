"""The room of events: the settings of redaction."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.events", settings=items("penstock.events.redaction:RedactionSettings")
)
