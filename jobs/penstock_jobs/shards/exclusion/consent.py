"""Consent is checked again when a shard is built: a user may have taken it back since.

The strictest consent of a chain holds for all of its sessions, since each goes on with what was
said in the others. `train` demands that every session consents; `not_denied` that none refuses.
"""

from collections.abc import Mapping

from penstock_jobs.shards.exclusion.reasons import (
    Exclusion,
    ExclusionReason,
    Exclusions,
    spread_over_chains,
)
from penstock_jobs.shards.recipe import Consent

NO_TRAIN = "no_train"
_REASONS: Mapping[str, ExclusionReason] = {
    NO_TRAIN: "consent_denied",
    "unknown": "consent_unknown",
}


def with_repeats(
    consents: Mapping[str, str], chains: Mapping[str, str], repeats: Mapping[str, str]
) -> dict[str, str]:
    """The consents, after a refusal has spread to all sessions that resume or fork the refusing
    one: they hold what was said there. `repeats` gives the parent of each such session."""
    denied = {
        chains.get(session, session) for session, said in consents.items() if said == NO_TRAIN
    }
    while True:
        further = {
            chains.get(session, session)
            for session, parent in repeats.items()
            if chains.get(parent, parent) in denied
        }
        if further <= denied:
            break
        denied |= further
    known = consents.keys() | chains.keys() | repeats.keys()
    return {
        session: NO_TRAIN
        if chains.get(session, session) in denied
        else consents.get(session, "unknown")
        for session in known
    }


def without_consent(
    consents: Mapping[str, str], chains: Mapping[str, str], demanded: Consent
) -> Exclusions:
    """`consents` and `chains` are by session, of whole chains. A missing consent is unknown."""
    enough = ("train",) if demanded == "train" else ("train", "unknown")
    denied: Exclusions = {}
    unknown: Exclusions = {}
    for session in consents.keys() | chains.keys():
        consent = consents.get(session, "unknown")
        if consent not in enough:
            reason = _REASONS.get(consent, "consent_unknown")
            (denied if reason == "consent_denied" else unknown)[session] = Exclusion(reason)
    # A refusal within a chain weighs more than a missing consent.
    return spread_over_chains(unknown, chains) | spread_over_chains(denied, chains)
