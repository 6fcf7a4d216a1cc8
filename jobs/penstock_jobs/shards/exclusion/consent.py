"""Consent, looked at once more when a shard is built: it may have been taken back since.

A chain is only as free as the least free of its sessions, since each of them goes on with what was
said in the others. `train` asks that every one of them says so; `not_denied` that none says no.
"""

from collections.abc import Mapping

from penstock_jobs.shards.exclusion.reasons import Found, Reason, Why, with_chains
from penstock_jobs.shards.recipe import Consent

_REASONS: Mapping[str, Reason] = {"no_train": "consent_denied", "unknown": "consent_unknown"}


def with_repeats(
    consents: Mapping[str, str], chains: Mapping[str, str], repeats: Mapping[str, str]
) -> dict[str, str]:
    """The consents, where a session that resumes or forks one which says no says no as well: it
    holds what was said there. `repeats` says of each such session which it repeats."""
    denied = {chains.get(one, one) for one, said in consents.items() if said == "no_train"}
    spread = True
    while spread:
        further = {
            chains.get(one, one)
            for one, parent in repeats.items()
            if chains.get(parent, parent) in denied
        }
        spread = not further <= denied
        denied |= further
    known = consents.keys() | chains.keys() | repeats.keys()
    said = {one: consents.get(one, "unknown") for one in known}
    return said | {one: "no_train" for one in known if chains.get(one, one) in denied}


def without_consent(
    consents: Mapping[str, str], chains: Mapping[str, str], wanted: Consent
) -> Found:
    """`consents` and `chains` are by session, of whole chains. A consent that nobody knows of is
    unknown."""
    enough = ("train",) if wanted == "train" else ("train", "unknown")
    denied: Found = {}
    unsaid: Found = {}
    for session in consents.keys() | chains.keys():
        said = consents.get(session, "unknown")
        if said not in enough:
            reason = _REASONS.get(said, "consent_unknown")
            of = denied if reason == "consent_denied" else unsaid
            of[session] = Why(reason)
    # That one of a chain said no weighs more than that another said nothing.
    return with_chains(unsaid, chains) | with_chains(denied, chains)
