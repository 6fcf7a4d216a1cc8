"""What the gate says of a checkpoint: a document that is never changed, named by its digest."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "ERROR"]


@dataclass(frozen=True)
class Verdict:
    """The document holds all that the outcome rests on: inputs with their digests, statistics,
    intervals. Only PASS opens the gate."""

    outcome: Outcome
    channel: str
    checkpoint: str
    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The document, the same text for the same facts."""
        return msgspec.json.encode(self.document, order="sorted").decode()

    @property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"
