"""The rooms of the platform, from the outside systems up to the doors."""

from penstock.access.room import ROOM as ACCESS
from penstock.backends.room import ROOM as BACKENDS
from penstock.doors.room import ROOM as DOORS
from penstock.events.room import ROOM as EVENTS
from penstock.ingest.room import ROOM as INGEST
from penstock.lake.room import ROOM as LAKE
from penstock.registry.channels.room import ROOM as CHANNELS
from penstock.registry.checkpoints.room import ROOM as CHECKPOINTS
from penstock.registry.fleet.room import ROOM as FLEET
from penstock.registry.gate.room import ROOM as GATE
from penstock.registry.proof.room import ROOM as PROOF
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
