"""The declaration of a room: what it brings to the house, typed and in one place.

Each package's `room.py` makes a `Room`; `penstock.doors.rooms` and `penstock_jobs.rooms` list them.
What it names is imported only when it is asked for, so that a command loads no room but its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from penstock.core.endpoint import Endpoint

_GROUP = "penstock.rooms"

Endpoints = Sequence["Endpoint[Any, Any]"]
Parts = Mapping[str, Any]
#: What people do with commands. Help has a group for each, in this order.
Task = Literal[
    "Start here",
    "Connect agents",
    "Read and ask",
    "Train",
    "Measure, promote, roll back",
    "Protect",
    "Operate",
]


def load(place: str) -> Any:
    """Import a module, or what it names: `package.module:NAME`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def items(*places: str) -> Callable[[], list[Any]]:
    """The objects at these places, and those that lists there hold."""

    def loaded() -> list[Any]:
        found = [load(place) for place in places]
        return [item for each in found for item in (each if isinstance(each, list) else [each])]

    return loaded


def parts(places: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    return lambda: {name: load(place) for name, place in places.items()}


@dataclass(frozen=True, kw_only=True)
class Room:
    #: The package; its folder `views` holds the SQL of the room's views.
    package: str
    #: The commands by task, each with its line in the list of commands.
    summaries: Mapping[Task, Mapping[str, str]] = field(default_factory=dict)
    #: The places of commands by name: functions, or groups of them. `channels.follow` belongs to a
    #: group of another room.
    commands: Mapping[str, str] = field(default_factory=dict)
    #: Modules that declare tables.
    tables: Callable[[], Iterable[object]] = list
    #: Subclasses of RoomSettings.
    settings: Callable[[], Sequence[type[Any]]] = list
    endpoints: Callable[[], Endpoints] = list
    #: Pages of the console.
    pages: Callable[[], Iterable[Any]] = list
    #: The names of its SQL views, and what binds the tables and files that they read.
    views: tuple[str, ...] = ()
    bind_views: Callable[[], Any] | None = None
    #: Upkeep jobs, which run in rounds while serving.
    upkeep: Callable[[], Parts] = dict
    erasure: Callable[[], Parts] = dict
    #: Kinds of data that retention deletes.
    retention: Callable[[], Parts] = dict
    #: Checks that `penstock lake verify` runs, each over a lake.
    checks: Callable[[], Iterable[Any]] = list
    #: Functions that find events in the log which no query may see.
    withheld: Callable[[], Iterable[Any]] = list
    #: Functions that find reasons to keep a shard.
    shard_uses: Callable[[], Iterable[Any]] = list
    #: Functions that a lake in Python has beside its queries.
    python: Callable[[], Parts] = dict
    #: Sections of the proof of a checkpoint.
    proof: Callable[[], Parts] = dict


@cache
def rooms() -> list[Room]:
    """List the rooms: the platform's, then the jobs'."""
    lists = sorted(entry_points(group=_GROUP), key=lambda entry: entry.name, reverse=True)
    return [room for entry in lists for room in entry.load()]
