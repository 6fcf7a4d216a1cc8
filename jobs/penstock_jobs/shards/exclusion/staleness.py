"""Staleness: sessions by checkpoints too far behind, or too old.

A session is as stale as the oldest checkpoint that wrote in it, and a chain as its oldest session.
What names no checkpoint, or one that is not among those counted, cannot be shown to be fresh, and
is left out with a reason of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock_jobs.shards.exclusion.reasons import Found, Why, with_chains


class Work(NamedTuple):
    session_id: str
    #: All that wrote in it.
    checkpoints: Sequence[str]
    #: When it was last heard of, in microseconds since 1970.
    last_us: int


@dataclass(frozen=True)
class Bounds:
    """`behind` says of each checkpoint how many versions it is behind; below 0 those that came
    after. None: versions do not matter."""

    behind: Mapping[str, int] | None = None
    max_versions: int = 0
    max_age_s: int | None = None


def versions_behind(order: Sequence[str], reference: str) -> dict[str, int]:
    """Of checkpoints in the order in which they came: a channel's history, or a line of
    ancestors. One that was served twice, as after a rollback, counts from its last time."""
    last = {name: place for place, name in enumerate(order)}
    return {name: last[reference] - place for name, place in last.items()}


def stale(works: Sequence[Work], chains: Mapping[str, str], bounds: Bounds, at_us: int) -> Found:
    """`at_us` is the time of the snapshot: the same shard must not grow staler while it is
    looked at."""
    found: Found = {}
    for work in works:
        why = _age(work, bounds.max_age_s, at_us)
        if bounds.behind is not None:
            why = _version(work, bounds.behind, bounds.max_versions) or why
        if why is not None:
            found[work.session_id] = why
    return with_chains(found, chains)


def _version(work: Work, behind: Mapping[str, int], max_versions: int) -> Why | None:
    unknown = sorted(name for name in work.checkpoints if name not in behind)
    if unknown or not work.checkpoints:
        return Why("stale_unknown_version", ", ".join(unknown) or "no checkpoint is named")
    oldest = max(work.checkpoints, key=lambda name: (behind[name], name))
    if behind[oldest] <= max_versions:
        return None
    return Why("stale_version", f"{oldest} is {behind[oldest]} versions behind")


def _age(work: Work, max_age_s: int | None, at_us: int) -> Why | None:
    if max_age_s is None or at_us - work.last_us <= max_age_s * 1_000_000:
        return None
    return Why("stale_age", f"last heard of {(at_us - work.last_us) // 1_000_000} s before")
