"""The rooms of the platform, from the outside systems up to the doors."""

from penstock.access.room import ROOM as ACCESS
from penstock.backends.room import ROOM as BACKENDS
from penstock.doors.room import ROOM as DOORS
from penstock.events.room import ROOM as EVENTS
from penstock.ingest.room import ROOM as INGEST
from penstock.lake.room import ROOM as LAKE
from penstock.registry.room import CHANNELS, CHECKPOINTS, FLEET, GATE, PROOF
from penstock.shards.room import ROOM as SHARDS

ROOMS = [
    BACKENDS,
    EVENTS,
    LAKE,
    ACCESS,
    INGEST,
    SHARDS,
    CHECKPOINTS,
    GATE,
    CHANNELS,
    FLEET,
    PROOF,
    DOORS,
]
