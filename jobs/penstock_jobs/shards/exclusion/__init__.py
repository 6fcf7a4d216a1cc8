"""Exclusion: which chosen sessions a shard leaves out, and why.

A session has one reason, the first in this order: consent, vendors' models, copies, contamination,
staleness, near-duplicates, caps. Caps come last: what is left out anyway uses up nobody's share.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

ExclusionReason = Literal[
    "consent_denied", "consent_denied_by_user", "consent_denied_by_project", "consent_unknown",
    "not_trainable", "copy", "contaminated_task",
    "contaminated_repo", "contaminated_commit", "contaminated_text", "stale_version",
    "stale_unknown_version", "stale_age", "near_duplicate", "cap_user", "cap_repo",
    "cap_sessions", "other_side",
]  # fmt: skip


class Exclusion(NamedTuple):
    reason: ExclusionReason
    #: The task, the original or the session of the chain that explains it.
    detail: str | None = None


#: By session. Sessions that stay are not in it.
Exclusions = dict[str, Exclusion]


def spread_over_chains(
    exclusions: Mapping[str, Exclusion], chains: Mapping[str, str]
) -> Exclusions:
    """Leave out whole chains: their sessions go on with what was said in the others. The least that
    is left out gives the reason for the rest."""
    causes: dict[str, tuple[str, Exclusion]] = {}
    for session in sorted(exclusions):
        causes.setdefault(chains.get(session, session), (session, exclusions[session]))
    spread = dict(exclusions)
    for session, chain in chains.items():
        if chain in causes and session not in exclusions:
            cause, exclusion = causes[chain]
            spread[session] = Exclusion(exclusion.reason, f"by {cause}, of the same chain")
    return spread


def first_reasons(mappings: Iterable[Mapping[str, Exclusion]]) -> Exclusions:
    """Give each session the reason of the first mapping that names it."""
    merged: Exclusions = {}
    for exclusions in mappings:
        merged = {**exclusions, **merged}
    return merged
