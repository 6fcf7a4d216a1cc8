"""A verdict of the gate: an immutable document, named by its digest."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Literal

import msgspec

from penstock.core.errors import PenstockError
from penstock.registry.checkpoints.digests import text_digest

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "ERROR"]
#: The outcome of one comparison, and why.
Finding = tuple[Outcome, str]


class Verdict(msgspec.Struct, frozen=True):
    """The document holds everything that the outcome depends on. Only PASS opens the gate."""

    outcome: Outcome
    channel: str
    checkpoint: str
    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The document as text; equal facts give equal text."""
        return msgspec.json.encode(self.document, order="sorted").decode()

    @property
    def id(self) -> str:
        return text_digest(self.text)


@dataclass(frozen=True)
class PartVerdict:
    """The verdict on one part of the policy; `facts` go into the document."""

    outcome: Outcome
    why: str
    facts: dict[str, Any] = field(default_factory=dict)
    #: Without an incumbent nothing was compared. It blocks nothing, and shows nothing.
    idle: bool = False

    @property
    def document(self) -> dict[str, Any]:
        idle = {"idle": True} if self.idle else {}
        return {"outcome": self.outcome, "why": self.why, **idle, **self.facts}


def finite(value: float) -> float | None:
    """A bound for a document: None if infinite."""
    return value if isfinite(value) else None


def shown_beside(value: float, limit: float) -> str:
    """A value with two or three digits, or more if rounding would move it across the limit."""
    side = (value > limit) - (value < limit)
    first = 2 if abs(value) < 1 else 3 if abs(value) < 1000 else 4
    for digits in range(first, 17):
        rounded = float(f"{value:.{digits}g}")
        if (rounded > limit) - (rounded < limit) == side:
            break
    return f"{Decimal(str(rounded)).normalize():f}" if isfinite(value) else str(value)


def worst_of(outcomes: Collection[Outcome]) -> Outcome:
    order: tuple[Outcome, ...] = ("ERROR", "FAIL", "INCONCLUSIVE", "PASS")
    return next(outcome for outcome in order if outcome in outcomes)


class GateRefused(PenstockError, http_status=422):
    """The gate's verdict on {checkpoint} for {channel} is {outcome}; only PASS opens it. Nothing
    was changed. `penstock gate check` shows why."""

    @property
    def verdict(self) -> Verdict:
        verdict = self.facts["verdict"]
        assert isinstance(verdict, Verdict)
        return verdict

    @property
    def http_fields(self) -> dict[str, Any]:
        outcome, document = self.verdict.outcome, dict(self.verdict.document)
        return {"outcome": outcome, "verdict": document, "verdict_id": self.verdict.id}
