"""Why a session is left out, and how that reaches the rest of its chain."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Reason = Literal[
    "consent_denied",
    "consent_unknown",
    "copy",
    "contaminated_task",
    "contaminated_repo",
    "contaminated_commit",
    "contaminated_text",
    "stale_version",
    "stale_unknown_version",
    "stale_age",
    "near_duplicate",
    "cap_user",
    "cap_repo",
    "cap_sessions",
    "other_side",
]


class Why(NamedTuple):
    reason: Reason
    #: What a person has to know to find it: the task, the original, the session of the chain.
    detail: str | None = None


#: By session; those that stay are not in it.
Found = dict[str, Why]


def with_chains(found: Mapping[str, Why], chains: Mapping[str, str]) -> Found:
    """What leaves out a session leaves out its whole chain, the sessions named in `chains`: the
    others go on with what was said in it. Of several, that of the least session decides."""
    ruling: dict[str, tuple[str, Why]] = {}
    for session in sorted(found):
        ruling.setdefault(chains.get(session, session), (session, found[session]))
    spread = dict(found)
    for session, chain in chains.items():
        if chain in ruling and session not in found:
            other, why = ruling[chain]
            spread[session] = Why(why.reason, f"by {other}, of the same chain")
    return spread


def first_of(all_found: Iterable[Mapping[str, Why]]) -> Found:
    """One reason a session: that of the first which names it."""
    merged: Found = {}
    for found in all_found:
        for session, why in found.items():
            merged.setdefault(session, why)
    return merged
