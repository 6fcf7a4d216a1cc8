"""The errors of the service."""

from penstock.errors import PenstockError


class ServiceAddressTaken(PenstockError, exit_status=3):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port or
    PENSTOCK_PORT."""
