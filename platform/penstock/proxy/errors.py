"""The errors of the recording proxy."""

from penstock.errors import PenstockError


class ProxyAddressTaken(PenstockError, exit_status=3):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port."""


class UpstreamUnreachable(PenstockError, exit_status=3):
    """The upstream {url} cannot be reached: {why}."""


class UpstreamBroken(PenstockError, exit_status=3):
    """The upstream {url} broke off its answer: {why}."""
