"""A session's consent: the strictest that was said for it, at any time."""

from collections.abc import Iterable

import msgspec

from penstock.events.payloads import SessionStart

UNKNOWN = "unknown"
_STRENGTH = {UNKNOWN: 0, "train": 1, "no_train": 2}

_decoder = msgspec.json.Decoder(SessionStart)


def strongest(consents: Iterable[str]) -> str:
    """`no_train`, once said, holds; `train` has to be said; else nobody asked."""
    return max(consents, key=_STRENGTH.__getitem__, default=UNKNOWN)


def consent_of(session_start_payload: bytes) -> str:
    """What it says; a start that says nothing is of a session that nobody asked."""
    return _decoder.decode(session_start_payload).consent or UNKNOWN
