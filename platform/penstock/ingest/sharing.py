"""Which partitions a writer should have, when several share a log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.database.engine import Database
from penstock.lake import partitions

#: A writer looks so many times a lease who else is there.
_LOOKS_A_LEASE = 6


@dataclass(frozen=True)
class Division:
    """What one writer may take, and what it should let go."""

    claim: frozenset[int]
    release: frozenset[int]


def divide(
    writers: Sequence[str], owners: Mapping[int, str], mine: str, partitions: int
) -> Division:
    """Every writer has as many as any other, or one more. Each decides for itself from the same
    facts; where the facts differ for a moment, the claims themselves keep order."""
    ranked = sorted({*writers, mine})
    rank = ranked.index(mine)
    quota = partitions // len(ranked) + (rank < partitions % len(ranked))
    held = sorted(p for p, owner in owners.items() if owner == mine and p < partitions)
    free = [p for p in range(partitions) if p not in owners]
    start = rank * len(free) // len(ranked)  # so that not all try for the same one
    wanted = (free[start:] + free[:start])[: max(0, quota - len(held))]
    return Division(frozenset(wanted), frozenset(held[quota:]))


class Sharing:
    """Keeps a writer's place among the others. Not shared between threads."""

    def __init__(self, database: Database, owner: str, lease_s: float, clock: Clock) -> None:
        self._database = database
        self._owner = owner
        self._lease_s = lease_s
        self._clock = clock
        self._looked_s = -math.inf

    def look(self, count: int) -> Division | None:
        """The division of so many partitions now; None when it is too early to look again."""
        now_s = self._clock.elapsed_s()
        if now_s - self._looked_s < self._lease_s / _LOOKS_A_LEASE:
            return None
        found = partitions.survey_writers(self._database, self._owner, self._lease_s)
        self._looked_s = now_s
        return divide(found.writers, found.owners, self._owner, count)

    def look_soon(self) -> None:
        self._looked_s = -math.inf

    def leave(self) -> None:
        partitions.remove_writer(self._database, self._owner)
