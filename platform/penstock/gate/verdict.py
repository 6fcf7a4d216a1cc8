"""What the gate says of a checkpoint: a document that is never changed, named by its digest."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Finding:
    """Why a metric cannot be judged: ERROR or INCONCLUSIVE."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class PartVerdict:
    """What one part of the policy came to; `facts` go into the document."""

    outcome: Outcome
    why: str
    facts: dict[str, Any] = field(default_factory=dict)
    #: Nothing had to be shown, since there is no incumbent.
    idle: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "why": self.why, **self.facts}


def worst_of(found: Sequence[Finding]) -> Outcome:
    order: tuple[Outcome, ...] = ("ERROR", "FAIL", "INCONCLUSIVE", "PASS")
    outcomes = {one.outcome for one in found}
    return next(one for one in order if one in outcomes)
