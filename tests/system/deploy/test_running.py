"""The compose file's processes, run as it says: its commands and its environment, with the names
of its servers replaced by the addresses of real ones."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import Lake
from tests.support.deploy.reading import PORT, Part, compose_parts, image_environment, instruction
from tests.support.lakes import body_of, make_event
from tests.support.servers.broker import Broker
from tests.support.servers.child import start_child
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.s3 import BUCKET, KEY, SECRET, S3Server
from tests.support.waiting import eventually

EVENTS = [make_event(f"s-{number % 20}", number) for number in range(200)]


@dataclass
class Running:
    """A process that stands for a container."""

    part: Part
    data: Path
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, key: str | None = None) -> ServiceClient:
        return ServiceClient(f"http://127.0.0.1:{self.port}", key)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with self.client() as client:
                return client.get("/readyz").status == 200
        except ServerUnreachable:
            return False

    def knows(self, key: str) -> bool:
        """A process hears of a new key a moment after it was made."""
        with self.client(key) as client:
            return client.post("/v1/query", b"").status == 400

    def is_healthy(self) -> bool:
        """By the check that the image carries."""
        program = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])[-1]
        command = [sys.executable, "-c", program.replace(str(PORT), str(self.port))]
        return subprocess.run(command, check=False).returncode == 0


def _stop(*running: Running) -> None:
    """Together, as `docker compose down` does it, and within the time that they are given."""
    for one in running:
        one.process.send_signal(signal.SIGTERM)
    for one in running:
        assert one.process.wait(one.part.grace_s) == 0, one.log.read_text()


@contextmanager
def _stack(
    broker: Broker, postgres: PostgresServer, s3: S3Server, keys: Path
) -> Iterator[Mapping[str, Part]]:
    """The parts, with addresses and keys that exist."""
    with postgres.database(migrated=False) as url:
        given = {
            "POSTGRES_PASSWORD": postgres.password,
            "S3_ACCESS_KEY": KEY,
            "S3_SECRET_KEY": SECRET,
        }
        places = {
            "kafka:9092/": f"{broker.address}/",
            "@postgres:5432/penstock": f"@{url.partition('@')[2]}",
            f"s3://{BUCKET}/penstock?": f"s3://{BUCKET}/{s3.new_prefix()}?",
            "http://objects:7070": s3.url,
            "/run/secrets/": f"{keys}/",
        }
        parts = compose_parts(given)
        for name, part in parts.items():
            environment = dict(part.environment)
            for before, after in places.items():
                found = [one for one, value in environment.items() if before in value]
                assert found, before
                environment |= {one: environment[one].replace(before, after) for one in found}
            parts[name] = replace(part, environment=environment)
        yield parts


def _keys(directory: Path) -> Path:
    """The two keys of the lake, made as deploy/env.example says."""
    directory.mkdir(mode=0o700)
    (directory / "secret.key").write_bytes(base64.b64encode(os.urandom(32)))
    (directory / "signing.key").write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    for file in directory.iterdir():
        file.chmod(0o600)
    return directory


def _environment(part: Part, data: Path) -> dict[str, str]:
    """What a container has: the image's environment and its own, and nothing of this machine's."""
    found = image_environment() | part.environment
    return found | {"PENSTOCK_DATA": str(data), "PATH": os.defpath, "HOME": "/nonexistent"}


def _run(part: Part, data: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *command],
        env=_environment(part, data),
        capture_output=True,
        text=True,
        check=False,
    )


def _start(part: Part, directory: Path) -> Running:
    port = free_port()
    data, log = directory / "data", directory / "log"
    data.mkdir(parents=True)
    command = ["127.0.0.1" if word == "0.0.0.0" else word for word in part.command]
    shell = ["env", "-i", *(f"{k}={v}" for k, v in _environment(part, data).items())]
    process = start_child(
        [*shell, sys.executable, "-m", "penstock", *command, "--port", str(port)], log=log
    )
    return Running(part, data, port, process, log)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="containers are Linux's")
def test_events_go_in_at_a_gateway_and_come_out_at_the_console(
    broker: Broker, postgres: PostgresServer, s3: S3Server, tmp_path: Path
) -> None:
    with _stack(broker, postgres, s3, _keys(tmp_path / "keys")) as parts, ExitStack() as ending:
        upgraded = _run(parts["upgrade"], tmp_path / "upgrade", *parts["upgrade"].command)
        assert upgraded.returncode == 0, upgraded.stderr
        running = []
        for name, part in parts.items():
            for number in range(part.replicas if part.role else 0):
                running.append(_start(part, tmp_path / f"{name}-{number}"))
                ending.callback(running[-1].process.kill)
        for one in running:
            eventually(one.is_ready)
            assert one.is_healthy()
        gateways, writers, [console] = (
            [one for one in running if one.part.role == role]
            for role in ("gateway", "writer", "console")
        )
        made = _run(console.part, console.data, "keys", "create", "--role", "admin", "--json")
        key = json.loads(made.stdout)["secret"]
        eventually(lambda: all(one.knows(key) for one in (*gateways, console)))
        half = len(EVENTS) // 2
        for gateway, events in ((gateways[0], EVENTS[:half]), (gateways[1], EVENTS)):
            with gateway.client(key) as client:
                assert client.send_events(body_of(events))["accepted"] == len(events)
        _holds_all(console, key)

        first, *others = writers
        _stop(first)
        with gateways[0].client(key) as client:
            client.send_events(body_of([make_event("s-late", 0)]))
        with Lake(console.part.settings(console.data)) as lake:
            eventually(lambda: not sum(row.waiting for row in read_ledger(lake).rows))
        ledger = _run(console.part, console.data, "ledger", "--json")
        assert ledger.returncode == 0, ledger.stdout
        _stop(*gateways, *others, console)
        assert _left_over(running) == []


def _holds_all(console: Running, key: str) -> None:
    """Each event once, wherever it is: in the log still, or in a segment."""
    sql = (
        "select count(*) as events, count(distinct (session_id, event_id)) as different from events"
    )
    with console.client(key) as client:
        answer = client.post("/v1/query", json.dumps({"sql": sql}).encode()).json()
    assert answer["rows"] == [{"events": len(EVENTS), "different": len(EVENTS)}]


def _left_over(running: list[Running]) -> list[Path]:
    """On the disk of a part at scale nothing stays that anybody needs, but the key of the first
    that was started. Screens of redaction are made anew where they are missing."""
    files = [path for one in running for path in one.data.rglob("*") if path.is_file()]
    return [path for path in files if path.name != "first-admin-key" and path.suffix != ".screen"]
