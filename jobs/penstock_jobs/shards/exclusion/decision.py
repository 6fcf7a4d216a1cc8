"""Which chosen sessions are left out: the exclusions in their order, by what the recipe says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.lake.buckets import SessionId
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.lake.tables import lake_commit
from penstock_jobs.shards.exclusion import caps, contamination, staleness
from penstock_jobs.shards.exclusion.consent import without_consent
from penstock_jobs.shards.exclusion.contamination import (
    Bounds,
    KnownSuite,
    Work,
    find_contaminated,
    find_suites,
)
from penstock_jobs.shards.exclusion.near_duplicates import find_near_duplicates
from penstock_jobs.shards.exclusion.reasons import Found, first_of, with_chains
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.session_facts import Asking, Facts


class Texts(Protocol):
    """What can only be known by reading what sessions say."""

    def contaminated(self, works: Sequence[contamination.Work]) -> Found:
        """Those that a task of the recipe's suites is in."""
        ...

    def alike(self, sessions: Sequence[str], groups: Sequence[str]) -> Found:
        """Those that say nearly the same as others; what is in one group is never compared."""
        ...


@dataclass(frozen=True)
class Served:
    """The checkpoints that a channel has pointed at, the present one last, and then its canary."""

    order: tuple[str, ...]
    current: str


@dataclass(frozen=True)
class Outside:
    """What a plan hangs on beside the sessions."""

    #: The time of the snapshot.
    at_us: int
    texts: Texts
    #: Of the channel that the recipe names.
    served: Served | None = None
    #: The versions of the recipe's suites.
    suites: Mapping[str, str] = field(default_factory=dict)


def excluded(
    recipe: Recipe, chosen: pa.Table, facts: Facts, copies: Found, outside: Outside
) -> Found:
    """Each for the first reason, in the order of `exclusions`."""
    wanted = recipe.exclude
    chains = facts.chains
    named = chosen["session_id"].to_pylist()
    found = first_of([without_consent(facts.consents_with_repeats, chains, wanted.consent), copies])
    if wanted.suites:
        found = first_of([found, _contaminated(facts, found, outside.texts)])
    found = first_of([found, _stale(recipe, facts, outside)])
    if wanted.near_duplicates:
        pairs = zip(named, chosen["group_id"].to_pylist(), strict=True)
        groups = {one: group for one, group in pairs if one not in found}
        near = outside.texts.alike(list(groups), list(groups.values()))
        found = first_of([found, with_chains(near, chains)])
    found |= _over_caps(recipe, [one for one in named if one not in found], facts)
    return {one: found[one] for one in named if one in found}


def _contaminated(facts: Facts, found: Found, texts: Texts) -> Found:
    works = [_work(one, facts) for one in facts.chains if one not in found]
    return with_chains(texts.contaminated(works), facts.chains)


def _work(session: str, facts: Facts) -> contamination.Work:
    row = facts.of(session)
    return contamination.Work(session, row["task_id"], row["repo"], row["commit"])


def _stale(recipe: Recipe, facts: Facts, outside: Outside) -> Found:
    wanted = recipe.staleness
    bounds = staleness.Bounds(
        _versions_behind(recipe, facts, outside.served), wanted.max_versions or 0, wanted.max_age_s
    )
    works = [
        staleness.Work(one, facts.of(one)["checkpoints"], facts.of(one)["last_us"])
        for one in facts.chains
    ]
    return staleness.stale(works, facts.chains, bounds, outside.at_us)


def _versions_behind(
    recipe: Recipe, facts: Facts, served: Served | None
) -> Mapping[str, int] | None:
    if served is not None:
        return staleness.versions_behind(served.order, served.current)
    named = recipe.staleness.checkpoint
    if named is None:
        return None
    order = _checkpoints(facts)
    if named not in order:
        known = ", ".join(order) or "none"
        why = f"no session of the query was served by it; known: {known}"
        raise InvalidInput(what=f"The checkpoint {named!r}", why=why)
    return staleness.versions_behind(order, named)


def _checkpoints(facts: Facts) -> list[str]:
    """In the order in which they were first heard of, in these sessions."""
    first: dict[str, int] = {}
    for session in facts.chains:
        row = facts.of(session)
        for name in row["checkpoints"]:
            first[name] = min(first.get(name, row["first_us"]), row["first_us"])
    return sorted(first, key=lambda name: (first[name], name))


def _over_caps(recipe: Recipe, left: Sequence[str], facts: Facts) -> Found:
    wanted = recipe.exclude
    limits = caps.Limits(wanted.max_per_user, wanted.max_per_repo, recipe.output.max_sessions)
    chains = facts.chains
    works = (
        caps.Work(one, chains[one], facts.of(one)["user"], facts.of(one)["repo"]) for one in left
    )
    return caps.over_caps(works, limits, recipe.seed)


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
