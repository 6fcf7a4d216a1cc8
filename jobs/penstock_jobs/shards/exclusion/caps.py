"""Caps: at most so many pieces of work of one user, of one repository, and in all.

A chain counts as one, and stays or goes whole. Which stay is drawn by the seed and the chain's own
name, so it does not matter in which order sessions came, and who has fewer loses none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from penstock_jobs.shards.exclusion.reasons import Found, Reason, Why


@dataclass(frozen=True)
class Limits:
    """None: as many as there are."""

    per_user: int | None = None
    per_repo: int | None = None
    sessions: int | None = None


class Work(NamedTuple):
    session_id: str
    chain: str
    #: A session of nobody, or of no repository, is not counted for one.
    user: str | None = None
    repo: str | None = None


def over_caps(works: Iterable[Work], limits: Limits, seed: int) -> Found:
    """A chain is its first session's user's, and in its repository; `sessions` counts
    sessions."""
    chains: dict[str, list[Work]] = {}
    for work in sorted(works, key=lambda work: (work.session_id != work.chain, work.session_id)):
        chains.setdefault(work.chain, []).append(work)
    users: dict[str, int] = {}
    repos: dict[str, int] = {}
    taken = 0
    found: Found = {}
    for chain in sorted(chains, key=lambda chain: (_drawn(seed, chain), chain)):
        members = chains[chain]
        user, repo = members[0].user, members[0].repo
        reason: Reason | None = None
        if user is not None and users.get(user, 0) == limits.per_user:
            reason = "cap_user"
        elif repo is not None and repos.get(repo, 0) == limits.per_repo:
            reason = "cap_repo"
        elif limits.sessions is not None and taken + len(members) > limits.sessions:
            reason = "cap_sessions"
        if reason is not None:
            found |= dict.fromkeys((one.session_id for one in members), Why(reason))
            continue
        taken += len(members)
        if user is not None:
            users[user] = users.get(user, 0) + 1
        if repo is not None:
            repos[repo] = repos.get(repo, 0) + 1
    return found


def _drawn(seed: int, chain: str) -> int:
    name = f"caps:{chain}".encode("utf-8", "surrogatepass")
    return xxhash.xxh3_64_intdigest(name, seed % 2**64)
