"""The errors of the metadata database."""

from penstock.core.errors import PenstockError


class DatabaseUnreachable(
    PenstockError, exit_status=3, http_status=503, http_headers={"Retry-After": "5"}
):
    """The metadata database cannot be used: {why}."""


class DatabaseOutdated(PenstockError, http_status=503):
    """The metadata database is at revision {found}, this Penstock needs {needed}.
    Run `penstock db upgrade`, or, when the database is the newer one, a newer Penstock."""
