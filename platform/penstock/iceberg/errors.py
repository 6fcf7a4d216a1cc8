"""The errors of Iceberg tables."""

from penstock.errors import PenstockError


class IcebergBusy(PenstockError, exit_status=1, http_status=409):
    """The Iceberg table of {tenant} is being published by another process.
    It holds what that one found: publish again later."""
