"""The errors of the service."""

from penstock.errors import PenstockError


class ServiceAddressTaken(PenstockError, exit_status=3):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port or
    PENSTOCK_PORT."""


class CertificateUnfit(PenstockError, exit_status=2):
    """The certificate {certificate!r} with the key {key!r} cannot be used: {why}. Name both, in
    PEM, the key without a passphrase (PENSTOCK_TLS_CERTIFICATE_FILE, PENSTOCK_TLS_KEY_FILE)."""
