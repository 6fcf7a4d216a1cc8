"""Exclusion: which chosen sessions a shard leaves out, and why. Here by their profiles alone.

A session has one reason, the first in this order: consent, vendors' models, copies, contamination,
staleness, near-duplicates, caps. Caps come last, so that excluded sessions use up no share.

The strictest consent of a chain holds for all of its sessions, since each continues the others. A
session is as stale as its oldest checkpoint and its first trained tokens; a chain is as stale as
its oldest session. Caps limit chains per user and per repository, and sessions in total. The seed
and the chain's name draw them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from penstock.access.privacy.consents import NO_TRAIN, DecisionKind
from penstock.access.privacy.tombstones import PROJECT, SESSION, USER
from penstock.core.errors import InvalidInput
from penstock_jobs.shards.selection.dictionary_codes import (
    codes_of,
    encode_names,
    order_of,
    positions_in,
    single_array,
)
from penstock_jobs.shards.selection.session_facts import SessionProfile

if TYPE_CHECKING:
    from penstock_jobs.shards.recipe import Consent

_NAMES_AT_ONCE = 10_000
_PARTICULAR_FIRST: tuple[DecisionKind, ...] = (SESSION, USER, PROJECT)
ExclusionReason = Literal[
    "consent_denied", "consent_denied_by_user", "consent_denied_by_project", "consent_unknown",
    "not_trainable", "copy", "contaminated_task",
    "contaminated_repo", "contaminated_commit", "contaminated_text", "stale_version",
    "stale_unknown_version", "stale_age", "near_duplicate", "cap_user", "cap_repo",
    "cap_sessions", "other_side",
]  # fmt: skip


_DENIED_BY: Mapping[DecisionKind, ExclusionReason] = {
    SESSION: "consent_denied",
    USER: "consent_denied_by_user",
    PROJECT: "consent_denied_by_project",
}


class Exclusion(NamedTuple):
    reason: ExclusionReason
    #: The task, original or session of the chain that explains it.
    detail: str | None = None


#: Exclusions by session.
Exclusions = dict[str, Exclusion]


def spread_over_chains(
    exclusions: Mapping[str, Exclusion], chains: Mapping[str, str]
) -> Exclusions:
    """Exclude whole chains, since their sessions continue each other.

    The least excluded session gives the reason for the rest."""
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
    """Merge exclusions. Earlier mappings win."""
    merged: Exclusions = {}
    for exclusions in mappings:
        merged = {**exclusions, **merged}
    return merged


def spread_denials(
    denied: Mapping[str, DecisionKind], chains: Mapping[str, str], repeats: Mapping[str, str]
) -> dict[str, DecisionKind]:
    """Spread denials over chains, and to sessions that resume or fork a denied one.

    `repeats` maps those to their parents. The most specific of several decisions is named."""
    by_chain: dict[str, DecisionKind] = {}
    for kind in _PARTICULAR_FIRST:
        spread = {chains.get(session, session) for session in denied if denied[session] == kind}
        spread -= by_chain.keys()
        while spread:
            by_chain |= dict.fromkeys(spread, kind)
            spread = {
                chains.get(session, session)
                for session, parent in repeats.items()
                if chains.get(parent, parent) in spread
            } - by_chain.keys()
    sessions = denied.keys() | chains.keys() | repeats.keys()
    return {
        session: by_chain[chain]
        for session in sessions
        if (chain := chains.get(session, session)) in by_chain
    }


def without_consent(
    consents: Mapping[str, str],
    chains: Mapping[str, str],
    demanded: "Consent",
    denied_by: Mapping[str, DecisionKind] = MappingProxyType({}),
) -> Exclusions:
    """Exclude by consent. `train`: all of a chain must consent; `not_denied`: none may refuse."""
    denied: Exclusions = {}
    unknown: Exclusions = {}
    for session in consents.keys() | chains.keys():
        consent = consents.get(session, "unknown")
        if consent == NO_TRAIN:
            denied[session] = Exclusion(_DENIED_BY[denied_by.get(session, SESSION)])
        elif consent != "train" and (consent, demanded) != ("unknown", "not_denied"):
            unknown[session] = Exclusion("consent_unknown")
    # A refusal within a chain weighs more than a missing consent.
    return spread_over_chains(unknown, chains) | spread_over_chains(denied, chains)


def of_vendors(marked: Iterable[Mapping[str, str]], chains: Mapping[str, str]) -> Exclusions:
    """Exclude output of vendors' models, whose terms mostly forbid training on it."""
    exclusions = {
        row["session_id"]: Exclusion("not_trainable", f"{row['model']} of {row['vendor']}")
        for row in marked
    }
    return spread_over_chains(exclusions, chains)


def stale(
    profiles: Iterable[SessionProfile],
    chains: Mapping[str, str],
    at_us: int,
    *,
    behind: Mapping[str, int] | None = None,
    max_versions: int = 0,
    sampled_us: Mapping[str, int] | None = None,
    max_age_s: int | None = None,
) -> Exclusions:
    """Exclude stale sessions. A session of an unknown version has its own reason.

    `at_us` is the time of the snapshot, `sampled_us` when first trained tokens were sampled,
    `behind` how many versions each checkpoint is behind."""
    exclusions: Exclusions = {}
    for profile in profiles:
        names = profile.checkpoints
        age_us = at_us - (sampled_us or {}).get(profile.session_id, at_us)
        unknown = sorted(set(names) - behind.keys()) if behind is not None else []
        if behind is not None and (unknown or not names):
            why = ", ".join(unknown) or "it names no checkpoint"
            exclusions[profile.session_id] = Exclusion("stale_unknown_version", why)
        elif behind is not None and max(behind[name] for name in names) > max_versions:
            count, oldest = max((behind[name], name) for name in names)
            why = f"{oldest} is {count} versions behind"
            exclusions[profile.session_id] = Exclusion("stale_version", why)
        elif max_age_s is not None and age_us > max_age_s * 1_000_000:
            why = f"its first tokens were sampled {age_us // 1_000_000} s before"
            exclusions[profile.session_id] = Exclusion("stale_age", why)
    return spread_over_chains(exclusions, chains)


def versions_behind(order: Sequence[str], reference: str) -> dict[str, int]:
    """Count versions behind the reference, by the last time that each was served."""
    last = {name: place for place, name in enumerate(order)}
    return {name: last[reference] - place for name, place in last.items()}


def behind_checkpoint(profiles: Iterable[SessionProfile], reference: str) -> dict[str, int]:
    """Count versions behind a checkpoint, in the order of first sessions.

    Raises InvalidInput if no session was served by it."""
    first: dict[str, int] = {}
    for profile in profiles:
        for name in profile.checkpoints:
            first[name] = min(first.get(name, profile.first_us), profile.first_us)
    order = sorted(first, key=lambda name: (first[name], name))
    if reference not in first:
        known = ", ".join(order) or "none"
        why = f"it served no session of the query; known checkpoints: {known}"
        raise InvalidInput(what=f"The checkpoint {reference!r}", why=why)
    return versions_behind(order, reference)


def behind_channel(channel: str, changes: pa.Table) -> tuple[str, dict[str, int]]:
    """Return the channel's checkpoint, and versions behind it. The canary is the newest.

    Raises InvalidInput if the channel has no checkpoint."""
    rows = changes.to_pylist()
    pointed = [row["checkpoint"] for row in rows if row["checkpoint"] is not None]
    if not pointed:
        why = (
            "nothing had been promoted to it in the recipe's snapshot; "
            "`penstock channels list` shows current channels"
        )
        raise InvalidInput(what=f"The channel {channel!r} of [staleness]", why=why)
    order = [name for at, name in enumerate(pointed) if not at or pointed[at - 1] != name]
    canary = rows[-1]["canary"]
    order += [canary] if canary is not None else []
    return pointed[-1], versions_behind(order, pointed[-1])


def over_caps(
    rows: pa.Table,
    seed: int,
    *,
    per_user: int | None = None,
    per_repo: int | None = None,
    sessions: int | None = None,
) -> pa.Array:
    """Return why each session is excluded; null if it stays.

    A chain has the user and repository of its first session."""
    if not rows.num_rows or (per_user, per_repo, sessions) == (None, None, None):
        return pa.nulls(rows.num_rows, pa.string())
    names, chains = encode_names(rows["session_id"]), encode_names(rows["chain"])
    numbers = codes_of(chains)
    own = codes_of(names)
    later = positions_in(names.dictionary, chains.dictionary)[numbers] != own
    places = order_of(own, later, numbers)
    starts = np.flatnonzero(np.diff(numbers[places], prepend=-1)).astype(np.int32)
    first, sizes = places[starts], np.diff(starts, append=len(places)).astype(np.int32)
    numbers = numbers[first]
    lots = np.empty(len(first), np.uint64)
    for at in range(0, len(first), _NAMES_AT_ONCE):
        some = chains.dictionary.take(pa.array(numbers[at : at + _NAMES_AT_ONCE])).to_pylist()
        lots[at : at + len(some)] = [lot(f"caps:{name}", seed) for name in some]
    drawn = order_of(numbers, lots)
    users, repos = (
        codes_of(single_array(rows[name]).dictionary_encode())[first[drawn]]
        for name in ("user", "repo")
    )
    # Excluded chains use up no share.
    of_user, of_repo = Counter[int](), Counter[int]()
    count = 0
    reasons = np.zeros(len(first), np.int8)
    for chain, size, user, repo in zip(drawn, sizes[drawn], users, repos, strict=True):
        if user >= 0 and of_user[user] == per_user:
            reasons[chain] = 1
        elif repo >= 0 and of_repo[repo] == per_repo:
            reasons[chain] = 2
        elif sessions is not None and count + size > sessions:
            reasons[chain] = 3
        else:
            count += size
            of_user[user] += 1
            of_repo[repo] += 1
    by_row = np.empty(len(places), np.int8)
    by_row[places] = np.repeat(reasons, sizes)
    return pa.array(_CAPS, pa.string()).take(pa.array(by_row))


_CAPS: tuple[ExclusionReason | None, ...] = (None, "cap_user", "cap_repo", "cap_sessions")


def lot(name: str, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed % 2**64)
