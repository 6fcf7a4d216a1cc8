"""The errors of the service."""

from penstock.errors import PenstockError


class ServiceAddressTaken(PenstockError):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port."""

    exit_status = 3
