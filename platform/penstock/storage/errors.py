"""The errors of the object store."""

from penstock.errors import PenstockError


class StoreUnreachable(
    PenstockError, exit_status=3, http_status=503, http_headers={"Retry-After": "5"}
):
    """The object store {where} cannot be reached: {why}.
    Penstock tries again as long as it has work there. Check whether the service is up."""


class StoreRefused(PenstockError, exit_status=3, http_status=503):
    """The object store {where} refused: {why}. {hint}."""
