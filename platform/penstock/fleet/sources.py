"""What a sidecar asks of the registry, be it the service or the database."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.fleet.fleet import PartName, Standing
from penstock.fleet.replicas import Report

#: Told of troubles that pass, in a sentence.
Tell = Callable[[str], None]


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
