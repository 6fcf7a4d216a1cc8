"""The errors of the gate."""

from penstock.errors import PenstockError


class GateRefused(PenstockError):
    """The gate says {outcome} of {checkpoint} for {channel}, and only PASS opens it. Nothing was
    changed; `penstock gate check` shows why."""

    http_status = 422
