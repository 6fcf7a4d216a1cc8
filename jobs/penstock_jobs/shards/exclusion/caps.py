"""Caps: at most so many chains of one user, of one repository, and so many sessions in all.

A chain stays or goes as a whole. The seed and the chain's name draw which chains stay, so the order
in which sessions came does not matter, and nobody under the cap loses a chain.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from penstock_jobs.shards.exclusion.reasons import (
    Exclusion,
    ExclusionReason,
    Exclusions,
    SessionProfile,
)


@dataclass(frozen=True)
class Caps:
    """None: no limit."""

    per_user: int | None = None
    per_repo: int | None = None
    sessions: int | None = None


def over_caps(profiles: Iterable[SessionProfile], caps: Caps, seed: int) -> Exclusions:
    """A chain has the user and the repository of its first session. A session without a user or
    repository is not counted for one."""
    chains: dict[str, list[SessionProfile]] = {}
    for profile in sorted(profiles, key=lambda one: (one.session_id != one.chain, one.session_id)):
        chains.setdefault(profile.chain, []).append(profile)
    users: dict[str, int] = {}
    repos: dict[str, int] = {}
    sessions = 0
    exclusions: Exclusions = {}
    for chain in sorted(chains, key=lambda chain: (_lot(seed, chain), chain)):
        members = chains[chain]
        user, repo = members[0].user, members[0].repo
        reason: ExclusionReason | None = None
        if user is not None and users.get(user, 0) == caps.per_user:
            reason = "cap_user"
        elif repo is not None and repos.get(repo, 0) == caps.per_repo:
            reason = "cap_repo"
        elif caps.sessions is not None and sessions + len(members) > caps.sessions:
            reason = "cap_sessions"
        if reason is not None:
            exclusions |= dict.fromkeys((one.session_id for one in members), Exclusion(reason))
            continue
        sessions += len(members)
        if user is not None:
            users[user] = users.get(user, 0) + 1
        if repo is not None:
            repos[repo] = repos.get(repo, 0) + 1
    return exclusions


def _lot(seed: int, chain: str) -> int:
    name = f"caps:{chain}".encode("utf-8", "surrogatepass")
    return xxhash.xxh3_64_intdigest(name, seed % 2**64)
