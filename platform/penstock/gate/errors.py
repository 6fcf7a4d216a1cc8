"""The errors of the gate."""

from typing import Any

from penstock.errors import PenstockError
from penstock.gate.verdict import Verdict


class GateRefused(PenstockError, http_status=422):
    """The gate says {outcome} of {checkpoint} for {channel}, and only PASS opens it. Nothing was
    changed; `penstock gate check` shows why."""

    @property
    def verdict(self) -> Verdict:
        verdict = self.facts["verdict"]
        assert isinstance(verdict, Verdict)
        return verdict

    @property
    def http_fields(self) -> dict[str, Any]:
        outcome, document = self.verdict.outcome, dict(self.verdict.document)
        return {"outcome": outcome, "verdict": document, "verdict_id": self.verdict.id}
