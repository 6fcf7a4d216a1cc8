"""HTTPS by certificate files."""

import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from penstock.core.errors import PenstockError
from penstock.doors.server.settings import ServerSettings


class ServiceAddressTaken(PenstockError, exit_status=3):
    """Cannot listen on {host}:{port}: {why}. Choose another with --port or
    PENSTOCK_PORT."""


class CertificateUnfit(PenstockError, exit_status=2):
    """The certificate {certificate!r} with the key {key!r} cannot be used: {why}. Name both, in
    PEM, the key without a passphrase (PENSTOCK_TLS_CERTIFICATE_FILE, PENSTOCK_TLS_KEY_FILE)."""


log_line = structlog.get_logger()


@dataclass(frozen=True)
class ServerTls:
    """A certificate; connections that began before a renewal keep the old one."""

    context: ssl.SSLContext
    certificate_file: str
    key_file: str

    def renew(self) -> None:
        """Read the files again. Raises CertificateUnfit; then the old certificate stays."""
        probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (probe, self.context):
            try:
                # A key that wants a passphrase is refused: without this it would ask on a terminal.
                context.load_cert_chain(self.certificate_file, self.key_file, password=lambda: "")
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                files = {"certificate": self.certificate_file, "key": self.key_file}
                raise CertificateUnfit(**files, why=str(error)) from error

    @contextmanager
    def renewed_on_hangup(self) -> Iterator[None]:
        """Renew on SIGHUP within the block."""

        def renew(*_: object) -> None:
            try:
                self.renew()
            except CertificateUnfit as error:
                log_line.error("the certificate stays the old one", why=str(error))
            else:
                log_line.info("the certificate was read again", file=self.certificate_file)

        before = signal.signal(signal.SIGHUP, renew)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)


def open_tls(settings: ServerSettings) -> ServerTls | None:
    """None where no certificate is named. Raises CertificateUnfit."""
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise CertificateUnfit(certificate=certificate, key=key, why="one of the two is not named")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    tls = ServerTls(context, certificate, key)
    tls.renew()
    return tls
