"""What a plan hangs on beside its sessions: the channel, the suites, and texts read on workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.lake.buckets import SessionId
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.lake.tables import lake_commit
from penstock_jobs.shards.asking import Asking
from penstock_jobs.shards.comparing import find_near_duplicates
from penstock_jobs.shards.contaminating import Bounds, KnownSuite, find_contaminated, find_suites
from penstock_jobs.shards.excluding import Outside, Served
from penstock_jobs.shards.exclusions.contamination import Work
from penstock_jobs.shards.exclusions.reasons import Found
from penstock_jobs.shards.recipe import Recipe


def look_outside(
    lake: Lake, executor: Executor, pin: Pin, recipe: Recipe, asking: Asking
) -> Outside:
    """Raises InvalidInput where the recipe names a suite or a channel that there is not."""
    suites = find_suites(lake.database, asking.tenant, recipe.exclude.suites)
    channel = recipe.staleness.channel
    return Outside(
        at_us=_committed_at(lake.database, pin.snap),
        texts=_Texts(lake, executor, pin, asking.tenant, recipe, suites),
        served=None if channel is None else served_by(channel, asking.served(channel)),
        suites={one.name: one.version for one in suites},
    )


@dataclass(frozen=True)
class _Texts:
    """Texts, read through the executor."""

    lake: Lake
    executor: Executor
    pin: Pin
    tenant: str
    recipe: Recipe
    suites: tuple[KnownSuite, ...]

    def contaminated(self, works: Sequence[Work]) -> Found:
        wanted = self.recipe.exclude
        return find_contaminated(
            self.lake,
            self.executor,
            self.pin,
            works={SessionId(self.tenant, one.session_id): one for one in works},
            suites=self.suites,
            bounds=Bounds(wanted.overlap_words, wanted.overlap_min),
        )

    def alike(self, sessions: Sequence[str], groups: Sequence[str]) -> Found:
        return find_near_duplicates(
            self.lake,
            self.executor,
            self.pin,
            [SessionId(self.tenant, one) for one in sessions],
            groups,
            seed=self.recipe.seed,
            similarity_min=self.recipe.exclude.similarity_min,
        )


def served_by(channel: str, changes: pa.Table) -> Served:
    """Of a channel's changes, the oldest first. Raises InvalidInput where it points at nothing."""
    rows = changes.to_pylist()
    pointed = [row["checkpoint"] for row in rows if row["checkpoint"] is not None]
    if not pointed:
        why = (
            "as of the recipe's snapshot nothing had been promoted to it; "
            "`penstock channels list` shows what there is now"
        )
        raise InvalidInput(what=f"The channel {channel!r} of [staleness]", why=why)
    order = [one for at, one in enumerate(pointed) if not at or pointed[at - 1] != one]
    canary = rows[-1]["canary"]
    return Served((*order, *([canary] if canary is not None else [])), pointed[-1])


def _committed_at(database: Database, snap: int) -> int:
    """When the lake was as it is at this snap."""
    query = sa.select(sa.func.max(lake_commit.c.committed_at)).where(lake_commit.c.snap <= snap)
    with database.read() as connection:
        return int(connection.execute(query).scalar() or 0)
