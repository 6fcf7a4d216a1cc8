"""What a proof is about: a checkpoint, those that it came from, and the shards that trained them.
Rooms above hand in sections of their own, as entry points of the group `penstock.proof`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from penstock.checkpoints.checkpoint import Checkpoint
from penstock.lake.lake import Lake


@dataclass(frozen=True)
class Gap:
    """Something that nobody can show, of what, and why."""

    part: str
    of: str
    why: str


@dataclass(frozen=True)
class ProofSubject:
    """`parents` begin with the nearest."""

    lake: Lake
    tenant: str
    checkpoint: Checkpoint
    parents: tuple[Checkpoint, ...]
    #: Compare the checksums of shards' files; else their sizes are looked at.
    read_files: bool = False
    gaps: list[Gap] = field(default_factory=list)

    @property
    def ancestry(self) -> tuple[Checkpoint, ...]:
        return (self.checkpoint, *self.parents)

    @property
    def shards(self) -> dict[str, list[str]]:
        """The checkpoints that each shard trained, by its id."""
        trained: dict[str, list[str]] = {}
        for learner in self.ancestry:
            for shard in learner.shards:
                trained.setdefault(shard, []).append(learner.name)
        return trained

    def lacks(self, part: str, of: str, why: str) -> None:
        self.gaps.append(Gap(part, of, why))


#: A section: plain JSON without fractions, and without names of people or sessions.
Section = Callable[[ProofSubject], Any]


def sections_of_rooms() -> Mapping[str, Section]:
    entries = sorted(entry_points(group="penstock.proof"), key=lambda entry: entry.name)
    return {entry.name: entry.load() for entry in entries}
