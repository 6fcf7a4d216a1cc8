"""The errors of the object store."""

from penstock.errors import PenstockError


class StoreUnreachable(PenstockError):
    """The object store {where} cannot be reached: {why}.
    Tries go on as long as something is to be done there; look whether the service is up."""

    exit_status = 3
    http_status = 503

    @property
    def http_headers(self) -> dict[str, str]:
        return {"Retry-After": "5"}


class StoreRefused(PenstockError):
    """The object store {where} refused: {why}. {hint}."""

    exit_status = 3
    http_status = 503
