"""Which chosen sessions are left out: the exclusions in their order, as the recipe demands."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import sqlalchemy as sa

from penstock.checkpoints.suites import SuiteVersion
from penstock.lake.tables import lake_commit
from penstock_jobs.shards.exclusion import Exclusions, first_reasons, spread_over_chains
from penstock_jobs.shards.exclusion.contamination import (
    OverlapBounds,
    find_contaminated,
    find_suites,
)
from penstock_jobs.shards.exclusion.eligibility import (
    Caps,
    ChannelCheckpoints,
    StalenessBounds,
    behind_checkpoint,
    channel_checkpoints,
    over_caps,
    stale,
    versions_behind,
    with_repeats,
    without_consent,
)
from penstock_jobs.shards.exclusion.near_duplicates import find_near_duplicates
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.session_facts import PinnedSessions, SessionFacts


@dataclass(frozen=True)
class ExclusionSources:
    """What the exclusions read beside the facts of sessions."""

    sessions: PinnedSessions
    suites: tuple[SuiteVersion, ...]
    #: Of the channel that the recipe names.
    served: ChannelCheckpoints | None
    #: The time of the snapshot.
    at_us: int


def open_sources(sessions: PinnedSessions, recipe: Recipe) -> ExclusionSources:
    """Raises InvalidInput where the recipe names a suite or a channel that does not exist."""
    database, channel = sessions.lake.database, recipe.staleness.channel
    committed = sa.select(sa.func.max(lake_commit.c.committed_at))
    with database.read() as connection:
        at_us = connection.execute(
            committed.where(lake_commit.c.snap <= sessions.pin.snap)
        ).scalar()
    return ExclusionSources(
        sessions=sessions,
        suites=find_suites(database, sessions.tenant, recipe.exclude.suites),
        served=channel_checkpoints(channel, sessions.channel_changes(channel)) if channel else None,
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
    exclude, chains, profiles = recipe.exclude, facts.chains, facts.profiles
    repeats = facts.links.repeats
    parents = {session: repeats[session] for session in profiles if session in repeats}
    consents = with_repeats(facts.consents, chains, parents)
    exclusions = first_reasons([without_consent(consents, chains, exclude.consent), copies])
    if sources.suites:
        others = {name: profile for name, profile in profiles.items() if name not in exclusions}
        bounds = OverlapBounds(exclude.overlap_words, exclude.overlap_min)
        contaminated = find_contaminated(sources.sessions, others, sources.suites, bounds)
        exclusions = first_reasons([exclusions, spread_over_chains(contaminated, chains)])
    exclusions = first_reasons([exclusions, _stale(recipe, facts, sources)])
    columns = (chosen["session_id"].to_pylist(), chosen["group_id"].to_pylist())
    groups = dict(zip(*columns, strict=True))
    if exclude.near_duplicates:
        alike = find_near_duplicates(
            sources.sessions,
            {session: group for session, group in groups.items() if session not in exclusions},
            seed=recipe.seed,
            similarity_min=exclude.similarity_min,
        )
        exclusions = first_reasons([exclusions, spread_over_chains(alike, chains)])
    caps = Caps(exclude.max_per_user, exclude.max_per_repo, recipe.output.max_sessions)
    remaining = (profiles[session] for session in groups if session not in exclusions)
    exclusions |= over_caps(remaining, caps, recipe.seed)
    return {session: exclusions[session] for session in groups if session in exclusions}


def _stale(recipe: Recipe, facts: SessionFacts, sources: ExclusionSources) -> Exclusions:
    staleness, profiles = recipe.staleness, facts.profiles.values()
    behind: Mapping[str, int] | None = None
    if sources.served is not None:
        behind = versions_behind(sources.served.order, sources.served.current)
    elif staleness.checkpoint is not None:
        behind = behind_checkpoint(profiles, staleness.checkpoint)
    bounds = StalenessBounds(behind, staleness.max_versions or 0, staleness.max_age_s)
    return stale(profiles, facts.chains, bounds, sources.at_us)
