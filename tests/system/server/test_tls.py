"""`serve` speaks HTTPS by certificate files, and reads renewed ones on SIGHUP."""

import json
import signal
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.commands import penstock
from tests.support.waiting import eventually


def write_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Of this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def name_shown(server: Server) -> str:
    """The name in the certificate that a new connection gets."""
    address = urlsplit(server.url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((address.hostname, address.port), timeout=10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    [name] = x509.load_der_x509_certificate(shown).subject
    return str(name.value)


@pytest.mark.smoke
def test_a_service_speaks_https_and_takes_a_renewed_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = write_certificate(tmp_path, "first")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    arguments = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    with running_server(tmp_path / "data", *arguments) as server:
        assert server.url.startswith("https://")
        done = penstock("query", "select 1 as n", "--url", server.url, "--json")
        assert (done.returncode, "needs a key" in done.stderr) == (1, True)
        monkeypatch.setenv("PENSTOCK_KEY", server.key or "")
        done = penstock("query", "select 1 as n", "--url", server.url, "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, [{"n": 1}]), done.stderr
        plain = server.url.replace("https://", "http://")
        assert penstock("query", "select 1", "--url", plain).returncode == 3
        assert name_shown(server) == "first"
        key.write_text("broken")
        server.process.send_signal(signal.SIGHUP)
        assert name_shown(server) == "first"
        write_certificate(tmp_path, "second")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: name_shown(server) == "second")


@pytest.mark.parametrize("named", [("CERT",), ("KEY",), ("CERT", "KEY")])
def test_a_certificate_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, named: tuple[str, ...]
) -> None:
    (tmp_path / "CERT").write_text("no certificate")
    options = [part for name in named for part in (f"--tls-{name.lower()}", str(tmp_path / name))]
    done = penstock("serve", "--port", "0", "--data", str(tmp_path / "data"), *options)
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
