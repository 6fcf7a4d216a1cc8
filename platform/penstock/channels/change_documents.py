"""Changes of channels, as they are told."""

from dataclasses import asdict
from typing import Any

from penstock.channels.history import Change
from penstock.terminal.output import time_of

_SHORT = len("sha256:") + 12


def document_of(change: Change) -> dict[str, Any]:
    """For JSON."""
    return asdict(change) | {"at": time_of(change.at).isoformat()}


def what_it_did(change: Change, before: Change | None = None) -> str:
    """In a few words. `before` is the change before it, where that is known."""
    match change.action:
        case "promote":
            return f"{change.previous} → {change.checkpoint}" if change.previous else _first(change)
        case "canary":
            return f"{change.canary} on {_percent(change)} of the traffic, beside " + str(
                change.checkpoint
            )
        case "rollback":
            return _rolled_back(change, before)
        case "release":
            return f"released, at {change.checkpoint or 'nothing yet'}"
        case "policy":
            return f"policy {short(change.policy)}"


def marks_of(change: Change) -> str:
    """What nobody should overlook."""
    found = ["OVERRIDDEN"] if change.overridden else []
    found += ["pinned"] if change.pinned else []
    return ", ".join(found)


def short(digest: str | None) -> str:
    return (digest or "")[:_SHORT]


def _first(change: Change) -> str:
    return f"{change.checkpoint} is the first"


def _rolled_back(change: Change, before: Change | None) -> str:
    if before is None:  # it left another one, or a canary
        return f"back to {change.checkpoint}"
    if before.checkpoint == change.checkpoint:
        return f"back to {change.checkpoint} alone, without {before.canary}"
    return f"{before.checkpoint} → back to {change.checkpoint}"


def _percent(change: Change) -> str:
    return f"{100 * (change.canary_share or 0):.12g} %"
