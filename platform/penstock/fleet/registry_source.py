"""What a sidecar asks of the registry: over HTTP, or in the database."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from penstock.channels.channel import channel_state
from penstock.channels.watchers import POLL_SECONDS
from penstock.checkpoints.errors import LineageBroken
from penstock.checkpoints.registration import ancestors, check_chain, find_in
from penstock.database.engine import Database
from penstock.database.errors import DatabaseUnreachable
from penstock.fleet import replicas
from penstock.fleet.fleet_status import PartName, Standing
from penstock.fleet.replicas import Report
from penstock.http.client import ServiceClient, Tell, answers, channel_path
from penstock.settings import Settings


@dataclass(frozen=True)
class Pointing:
    """Where a channel points."""

    version: int
    checkpoint: str | None
    digest: str | None
    uri: str | None
    canary: str | None
    canary_digest: str | None
    canary_uri: str | None


@dataclass(frozen=True)
class Target:
    """What a part of a channel is to serve, since that version of the channel; without a checkpoint
    nothing yet."""

    version: int
    checkpoint: str | None
    digest: str | None


@dataclass(frozen=True)
class Piece:
    """A checkpoint as it is fetched."""

    name: str
    digest: str
    uri: str
    form: str
    parent: str | None


class Source(Protocol):
    def pointing(self) -> Pointing:
        """As it is now. Raises ChannelUnknown, ServerUnreachable, AnswerUnusable,
        DatabaseUnreachable."""
        ...

    def pointings(self, tell: Tell) -> Iterator[Pointing]:
        """As it is now, and then whenever it changed, the newest, until it is closed; outages are
        told and outlasted."""
        ...

    def close(self) -> None:
        """From any thread: who waits for a change waits no longer."""
        ...

    def chain(self, name: str) -> Sequence[Piece]:
        """A checkpoint, after all that it is a delta on: the first one is whole. Raises
        CheckpointUnknown, LineageBroken and what `pointing` raises."""
        ...

    def report(self, said: Report) -> Sequence[Standing]:
        """How the fleet stands then. Raises ReplicaTaken and what `pointing` raises."""
        ...


def target_of(found: Pointing, part: PartName) -> Target:
    if part == "canary" and found.canary is not None:
        return Target(found.version, found.canary, found.canary_digest)
    return Target(found.version, found.checkpoint, found.digest)


_ANSWER_SECONDS_MAX = 15.0
_POINTING = [one.name for one in fields(Pointing)]
_PIECE = [one.name for one in fields(Piece)]


class ServiceSource:
    """A Source."""

    def __init__(self, url: str, channel: str) -> None:
        self._channel = channel
        self._asking = ServiceClient(url, _ANSWER_SECONDS_MAX)
        self._reporting = ServiceClient(url, _ANSWER_SECONDS_MAX)
        self._waiting = ServiceClient(url)
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()
        self._waiting.cut()

    def pointing(self) -> Pointing:
        return _pointing(self._asking.ask(channel_path(self._channel), "version"))

    def pointings(self, tell: Tell) -> Iterator[Pointing]:
        known: int | None = None
        for answer in answers(self._waiting, self._channel, None, tell, self._closed):
            if answer["version"] != known:
                known = answer["version"]
                yield _pointing(answer)

    def chain(self, name: str) -> Sequence[Piece]:
        line = [self._piece(name)]
        while line[-1].form == "delta":
            parent = line[-1].parent
            if parent is None or parent in {one.name for one in line}:
                raise LineageBroken(name=name, why="none of its ancestors is whole")
            line.append(self._piece(parent))
        return line[::-1]

    def report(self, said: Report) -> Sequence[Standing]:
        path = f"{channel_path(self._channel)}/replicas"
        answer = self._reporting.ask(path, "parts", said)
        return [standing_of(one) for one in answer["parts"]]

    def _piece(self, name: str) -> Piece:
        answer = self._asking.ask(f"checkpoints/{quote(name, safe='')}", "digest")
        return Piece(**{one: answer[one] for one in _PIECE})


def standing_of(answer: dict[str, Any]) -> Standing:
    since = answer["since"]
    us = round(datetime.fromisoformat(since).timestamp() * 1_000_000) if since else None
    return msgspec.convert(answer | {"since": us}, Standing)


def _pointing(answer: dict[str, Any]) -> Pointing:
    return Pointing(**{name: answer[name] for name in _POINTING})


_PAUSE_SECONDS = 5.0
#: Loading takes seconds, and looking costs a processor that the engine could use.
_LOOK_SECONDS_MIN = 0.1
_NAMES = [one.name for one in fields(Pointing)]


class DatabaseSource:
    """A Source."""

    def __init__(self, database: Database, settings: Settings, tenant: str, channel: str) -> None:
        self._database = database
        self._settings = settings
        self._place = (tenant, channel)
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def pointing(self) -> Pointing:
        found = channel_state(self._database, *self._place)
        return Pointing(**{name: getattr(found, name) for name in _NAMES})

    def pointings(self, tell: Tell) -> Iterator[Pointing]:
        known: int | None = None
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                found = self.pointing()
            except DatabaseUnreachable as error:
                tell(f"{error} It is tried again.")
                pause_s = _PAUSE_SECONDS
                continue
            pause_s = max(_LOOK_SECONDS_MIN, POLL_SECONDS)
            if found.version != known:
                known = found.version
                yield found

    def chain(self, name: str) -> Sequence[Piece]:
        with self._database.read() as connection:
            found = find_in(connection, self._place[0], name)
            check_chain(connection, found)
            line = [found]
            if found.form == "delta":
                for one in ancestors(connection, found):
                    line.append(one)
                    if one.form == "whole":
                        break
        return [Piece(one.name, one.digest, one.uri, one.form, one.parent) for one in line[::-1]]

    def report(self, said: Report) -> Sequence[Standing]:
        return replicas.report(self._database, self._settings, *self._place, said)
