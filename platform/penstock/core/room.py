"""A room says here, typed and in one place, what it brings to the house.

Each package `room.py` makes a `Room`; `penstock.doors.rooms` and `penstock_jobs.rooms` list them.
What a room brings is given by functions that import it when it is asked for, so that a command
loads its own room and no other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.endpoint import Endpoint

_GROUP = "penstock.rooms"

Endpoints = Sequence["Endpoint[Any, Any]"]
Commands = Mapping[str, Any]
Parts = Mapping[str, Any]


def _none() -> list[Any]:
    return []


def _no_parts() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Room:
    #: The package, in whose folder `views` the SQL of its views lies.
    package: str
    #: Its commands, and what the list of commands says of each.
    summaries: Mapping[str, str] = field(default_factory=dict)
    #: Commands that it adds to a group of another room: `channels.follow`.
    joined: tuple[str, ...] = ()
    #: All of these commands: each a function, or a group of functions.
    commands: Callable[[], Commands] = _no_parts
    #: Modules that declare tables.
    tables: Callable[[], Iterable[object]] = _none
    #: What an operator may turn: subclasses of RoomSettings.
    settings: Callable[[], Sequence[type[Any]]] = _none
    #: What can be asked over HTTP, and so by commands from anywhere.
    endpoints: Callable[[], Endpoints] = _none
    #: Pages of the console.
    pages: Callable[[], Iterable[Any]] = _none
    #: The names of its SQL views, and what binds the tables and files that they read.
    views: tuple[str, ...] = ()
    bind_views: Callable[[], Any] | None = None
    #: Jobs that keep the lake in shape, run in rounds while serving.
    upkeep: Callable[[], Parts] = _no_parts
    #: Its steps of an erasure.
    erasure: Callable[[], Parts] = _no_parts
    #: Kinds of data that are kept for a time.
    retention: Callable[[], Parts] = _no_parts
    #: Checks that `penstock lake verify` runs, each over a lake.
    checks: Callable[[], Iterable[Any]] = _none
    #: Finds events that wait in the log and that no query may see.
    withheld: Callable[[], Iterable[Any]] = _none
    #: Finds reasons why a shard is still needed.
    shard_uses: Callable[[], Iterable[Any]] = _none
    #: Sections of the proof of a checkpoint.
    proof: Callable[[], Parts] = _no_parts


@cache
def rooms() -> list[Room]:
    """All rooms of the platform, then those of the jobs."""
    lists = sorted(entry_points(group=_GROUP), key=lambda entry: entry.name, reverse=True)
    return [room for entry in lists for room in entry.load()]
