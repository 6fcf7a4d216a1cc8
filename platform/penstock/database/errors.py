"""The errors of the metadata database."""

from penstock.errors import PenstockError


class DatabaseUnreachable(PenstockError):
    """The metadata database cannot be used: {why}."""

    exit_status = 3
    http_status = 503

    @property
    def http_headers(self) -> dict[str, str]:
        return {"Retry-After": "5"}


class DatabaseOutdated(PenstockError):
    """The metadata database is at revision {found}, this Penstock needs {needed}.
    Run `penstock db upgrade`, or, when the database is the newer one, a newer Penstock."""

    exit_status = 1
    http_status = 503
