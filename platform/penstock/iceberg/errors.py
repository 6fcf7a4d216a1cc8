"""The errors of Iceberg tables."""

from penstock.errors import PenstockError


class IcebergSealed(PenstockError, exit_status=2):
    """The lake {where} is encrypted: its files cannot be read as tables of Iceberg.
    Other engines have no keys for them. Ask Penstock: `penstock query`, or POST /v1/query."""


class IcebergBusy(PenstockError, exit_status=1, http_status=409):
    """The Iceberg table of {tenant} is being published by another process.
    It holds what that one found: publish again later."""
