"""Staleness: sessions whose checkpoints are too far behind, or that are too old.

A session is as stale as the oldest checkpoint that wrote in it, and a chain as its oldest session.
A session that names no checkpoint, or one that is not in the order, cannot be shown to be fresh. It
is left out with a reason of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock_jobs.shards.exclusion.reasons import (
    Exclusion,
    Exclusions,
    SessionProfile,
    spread_over_chains,
)


@dataclass(frozen=True)
class StalenessBounds:
    """`behind` says how many versions each checkpoint is behind; newer ones are below 0. None:
    versions do not matter."""

    behind: Mapping[str, int] | None = None
    max_versions: int = 0
    max_age_s: int | None = None


@dataclass(frozen=True)
class ChannelCheckpoints:
    """The checkpoints that a channel has pointed at, the current one last, then its canary."""

    order: tuple[str, ...]
    current: str


def stale(
    profiles: Iterable[SessionProfile],
    chains: Mapping[str, str],
    bounds: StalenessBounds,
    at_us: int,
) -> Exclusions:
    """`at_us` is the time of the snapshot: a shard that is built again from it is the same."""
    exclusions: Exclusions = {}
    for profile in profiles:
        exclusion = _too_old(profile, bounds.max_age_s, at_us)
        if bounds.behind is not None:
            exclusion = _behind(profile, bounds.behind, bounds.max_versions) or exclusion
        if exclusion is not None:
            exclusions[profile.session_id] = exclusion
    return spread_over_chains(exclusions, chains)


def _behind(
    profile: SessionProfile, behind: Mapping[str, int], max_versions: int
) -> Exclusion | None:
    unknown = sorted(name for name in profile.checkpoints if name not in behind)
    if unknown or not profile.checkpoints:
        detail = ", ".join(unknown) or "no checkpoint is named"
        return Exclusion("stale_unknown_version", detail)
    oldest = max(profile.checkpoints, key=lambda name: (behind[name], name))
    if behind[oldest] <= max_versions:
        return None
    return Exclusion("stale_version", f"{oldest} is {behind[oldest]} versions behind")


def _too_old(profile: SessionProfile, max_age_s: int | None, at_us: int) -> Exclusion | None:
    age_us = at_us - profile.last_us
    if max_age_s is None or age_us <= max_age_s * 1_000_000:
        return None
    return Exclusion("stale_age", f"last heard of {age_us // 1_000_000} s before")


def versions_behind(order: Sequence[str], reference: str) -> dict[str, int]:
    """For checkpoints in the order in which they came. A checkpoint that was served twice, as
    after a rollback, counts from its last time."""
    last = {name: place for place, name in enumerate(order)}
    return {name: last[reference] - place for name, place in last.items()}


def behind_checkpoint(profiles: Iterable[SessionProfile], reference: str) -> dict[str, int]:
    """Versions behind a checkpoint, in the order in which these sessions first heard of each.
    Raises InvalidInput where none was served by it."""
    first: dict[str, int] = {}
    for profile in profiles:
        for name in profile.checkpoints:
            first[name] = min(first.get(name, profile.first_us), profile.first_us)
    order = sorted(first, key=lambda name: (first[name], name))
    if reference not in first:
        known = ", ".join(order) or "none"
        why = f"no session of the query was served by it; known: {known}"
        raise InvalidInput(what=f"The checkpoint {reference!r}", why=why)
    return versions_behind(order, reference)


def channel_checkpoints(channel: str, changes: pa.Table) -> ChannelCheckpoints:
    """From the channel's changes, the oldest first. Raises InvalidInput where it never pointed at
    a checkpoint."""
    rows = changes.to_pylist()
    pointed = [row["checkpoint"] for row in rows if row["checkpoint"] is not None]
    if not pointed:
        why = (
            "as of the recipe's snapshot nothing had been promoted to it; "
            "`penstock channels list` shows what there is now"
        )
        raise InvalidInput(what=f"The channel {channel!r} of [staleness]", why=why)
    order = [name for at, name in enumerate(pointed) if not at or pointed[at - 1] != name]
    canary = rows[-1]["canary"]
    return ChannelCheckpoints((*order, *([canary] if canary is not None else [])), pointed[-1])
