"""Which chosen sessions are left out: the exclusions in their order, as the recipe demands."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import sqlalchemy as sa

from penstock.checkpoints.suites import SuiteVersion
from penstock.execution import Executor
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.lake.tables import lake_commit
from penstock_jobs.shards.exclusion.caps import Caps, over_caps
from penstock_jobs.shards.exclusion.consent import without_consent
from penstock_jobs.shards.exclusion.contamination import (
    OverlapBounds,
    find_contaminated,
    find_suites,
)
from penstock_jobs.shards.exclusion.near_duplicates import find_near_duplicates
from penstock_jobs.shards.exclusion.reasons import Exclusions, first_reasons, spread_over_chains
from penstock_jobs.shards.exclusion.session_buckets import SessionBuckets
from penstock_jobs.shards.exclusion.staleness import (
    ChannelCheckpoints,
    StalenessBounds,
    behind_checkpoint,
    channel_checkpoints,
    stale,
    versions_behind,
)
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.session_facts import SessionFacts, SnapshotQueries


@dataclass(frozen=True)
class ExclusionSources:
    """What the exclusions read beside the facts of sessions."""

    buckets: SessionBuckets
    suites: tuple[SuiteVersion, ...]
    #: Of the channel that the recipe names.
    served: ChannelCheckpoints | None
    #: The time of the snapshot.
    at_us: int


def open_sources(
    lake: Lake, executor: Executor, pin: Pin, recipe: Recipe, queries: SnapshotQueries
) -> ExclusionSources:
    """Raises InvalidInput where the recipe names a suite or a channel that does not exist."""
    channel = recipe.staleness.channel
    committed = sa.select(sa.func.max(lake_commit.c.committed_at))
    suites = find_suites(lake.database, queries.tenant, recipe.exclude.suites)
    with lake.database.read() as connection:
        at_us = connection.execute(committed.where(lake_commit.c.snap <= pin.snap)).scalar()
    return ExclusionSources(
        buckets=SessionBuckets(lake, executor, pin, queries.tenant),
        suites=suites,
        served=channel_checkpoints(channel, queries.channel_changes(channel)) if channel else None,
        at_us=int(at_us or 0),
    )


def exclude_sessions(
    recipe: Recipe,
    chosen: pa.Table,
    facts: SessionFacts,
    copies: Exclusions,
    sources: ExclusionSources,
) -> Exclusions:
    """Each session with its first reason. `copies` are the sessions that hold only copies."""
    demanded = recipe.exclude
    chains = facts.chains
    refused = without_consent(facts.consents_with_repeats(), chains, demanded.consent)
    exclusions = first_reasons([refused, copies])
    if sources.suites:
        left = {name: one for name, one in facts.profiles.items() if name not in exclusions}
        bounds = OverlapBounds(demanded.overlap_words, demanded.overlap_min)
        contaminated = find_contaminated(sources.buckets, left, sources.suites, bounds)
        exclusions = first_reasons([exclusions, spread_over_chains(contaminated, chains)])
    exclusions = first_reasons([exclusions, _stale(recipe, facts, sources)])
    columns = (chosen["session_id"].to_pylist(), chosen["group_id"].to_pylist())
    groups = dict(zip(*columns, strict=True))
    if demanded.near_duplicates:
        alike = find_near_duplicates(
            sources.buckets,
            {session: group for session, group in groups.items() if session not in exclusions},
            seed=recipe.seed,
            similarity_min=demanded.similarity_min,
        )
        exclusions = first_reasons([exclusions, spread_over_chains(alike, chains)])
    caps = Caps(demanded.max_per_user, demanded.max_per_repo, recipe.output.max_sessions)
    left_over = (facts.profiles[session] for session in groups if session not in exclusions)
    exclusions |= over_caps(left_over, caps, recipe.seed)
    return {session: exclusions[session] for session in groups if session in exclusions}


def _stale(recipe: Recipe, facts: SessionFacts, sources: ExclusionSources) -> Exclusions:
    demanded = recipe.staleness
    behind: Mapping[str, int] | None = None
    if sources.served is not None:
        behind = versions_behind(sources.served.order, sources.served.current)
    elif demanded.checkpoint is not None:
        behind = behind_checkpoint(facts.profiles.values(), demanded.checkpoint)
    bounds = StalenessBounds(behind, demanded.max_versions or 0, demanded.max_age_s)
    return stale(facts.profiles.values(), facts.chains, bounds, sources.at_us)
