"""The errors of the gate."""

from typing import Any

from penstock.errors import PenstockError


class GateRefused(PenstockError):
    """The gate says {outcome} of {checkpoint} for {channel}, and only PASS opens it. Nothing was
    changed; `penstock gate check` shows why."""

    http_status = 422

    @property
    def http_fields(self) -> dict[str, Any]:
        verdict: Any = self.facts["verdict"]
        document = dict(verdict.document)
        return {"outcome": verdict.outcome, "verdict": document, "verdict_id": verdict.id}
