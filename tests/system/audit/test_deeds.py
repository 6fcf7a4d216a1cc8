"""Whatever people do through a service or at the lake is noted in the audit."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.keys import create_key
from penstock.backends.audit.chain import audit_entry
from penstock.backends.audit.entry import person_digest
from penstock.backends.database.engine import Database
from penstock.core.endpoint import encode_cursor
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.rewards.followups.labels import StoredLabel, add_label
from penstock_jobs.simulator.demo.server import running_server
from tests.support.commands import penstock
from tests.support.lakes import body_of, make_event
from tests.support.repository import ROOT

SQL = "select count(*) as n from events where session_id = 'very-private'"


@dataclass
class Audited:
    """A lake on which everything was done once, by a key where a service can be asked."""

    data: Path
    keys: dict[str, str]

    def entries(self, **wanted: str) -> list[dict[str, Any]]:
        options = [part for name, value in wanted.items() for part in (f"--{name}", value)]
        done = penstock("audit", "list", "--json", *options, "--data", str(self.data))
        assert done.returncode == 0, done.stderr
        entries: list[dict[str, Any]] = json.loads(done.stdout)["entries"]
        return entries


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    data = tmp_path_factory.mktemp("audited") / "data"
    keys, secrets = {}, {}
    with open_or_make(load_settings(data, environment={})) as lake:
        for role in ("admin", "ingest", "read"):
            key, secrets[role] = create_key(lake.database, role, "default")
            keys[role] = f"key {key.id}"
        _, secrets["bolt"] = create_key(lake.database, "admin", "bolt")
    digest = f"sha256:{hashlib.sha256(b'a').hexdigest()}"
    recipe = ROOT / "examples" / "recipes" / "sft-persistent.toml"
    for command in (
        ["import", str(ROOT / "examples" / "sessions")],
        ["rewards", "run"],
        ["shards", "build", str(recipe)],
        ["shards", "export", "sft-persistent", "--to", "trl-sft", "--out", str(data / "out")],
        ["checkpoints", "register", "a", "--uri", "https://models.test/a", "--digest", digest],
        ["promote", "a", "--reason", "first", "--override", "--key", secrets["admin"]],
        ["query", SQL],
        ["quotas", "set", "default", "events_per_hour", "1000"],
        ["webhooks", "add", "https://fleet.example.com/hook"],
    ):
        done = penstock(*command, "--data", str(data))
        assert done.returncode == 0, (command, done.stderr)
    with running_server(data, settings={"PENSTOCK_LOG_FORMAT": "json"}) as server:
        with server.client(secrets["ingest"]) as client:
            for _ in range(2):
                assert client.post("/v1/events", body_of([make_event("s", 1)])).status == 200
        with server.client(secrets["read"]) as client:
            assert client.post("/v1/query", json.dumps({"sql": SQL}).encode()).status == 200
            assert client.get("/v1/sessions").status == 200
        with server.client(secrets["admin"]) as client:
            made = client.post("/v1/keys", b'{"role": "read"}').json()
            assert client.post(f"/v1/keys/{made['id']}/revoke", b"{}").status == 200
            own = client.get("/v1/audit").json()["entries"]
            assert {entry["tenant"] for entry in own} == {"default"}
        with server.client(secrets["bolt"]) as client:
            [entry] = client.get("/v1/audit").json()["entries"]
            assert (entry["tenant"], entry["action"]) == ("bolt", "key")
            [chain] = client.get("/v1/audit/verify").json()["chains"]
            assert (chain["tenant"], chain["number"], chain["flaw"]) == ("bolt", 1, None)
            assert (
                client.get(f"/v1/audit?cursor={encode_cursor(1, 'default')}").json()["entries"]
                == []
            )
        for role in ("ingest", "read"):
            with server.client(secrets[role]) as client:
                assert client.get("/v1/audit").status == 403
    return Audited(data, keys)


@pytest.mark.parametrize(
    ("action", "subject"),
    [
        ("ingest", ""),
        ("shard", "sha256:"),
        ("export", "sha256:"),
        ("checkpoint", "checkpoint a"),
        ("promote", "channel production"),
        ("read", "POST /v1/query"),
        ("read", "GET /v1/sessions"),
        ("quota", "quota events_per_hour"),
        ("webhook", "webhook "),
        ("key", "key "),
        ("revoke", "key "),
        ("settings", "serve all"),
    ],
)
def test_a_deed_is_noted(audited: Audited, action: str, subject: str) -> None:
    entries = audited.entries(action=action)
    assert any(entry["subject"].startswith(subject) for entry in entries), entries


def test_requests_of_a_key_are_added_up(audited: Audited) -> None:
    [entry] = audited.entries(action="ingest", actor=audited.keys["ingest"])
    assert json.loads(entry["facts"]) == {"accepted": 2, "rejected": 0, "times": 2}


def test_queries_of_a_key_are_added_up_without_their_texts(audited: Audited) -> None:
    [entry] = audited.entries(actor=audited.keys["read"], subject="POST /v1/query")
    assert json.loads(entry["facts"]) == {"times": 1}
    assert "very-private" not in json.dumps(audited.entries())


def test_settings_are_noted_once_until_they_change(audited: Audited) -> None:
    for _ in range(2):
        with running_server(audited.data, settings={"PENSTOCK_LOG_FORMAT": "text"}):
            pass
    changed, first = audited.entries(action="settings")
    assert json.loads(first["facts"])["PENSTOCK_LOG_FORMAT"] == "json"
    assert "PENSTOCK_LOG_FORMAT" not in json.loads(changed["facts"])


def test_a_label_is_noted_by_the_digest_of_its_session(audited: Audited) -> None:
    with open_or_make(load_settings(audited.data, environment={})) as lake:
        label = StoredLabel("s-1", 0, "0" * 64, "unclear", True, 0, "ann", False, 0)
        add_label(lake.database, "default", label, "v1")
    [entry] = audited.entries(session="s-1")
    assert (entry["action"], entry["actor"]) == ("label", "ann")
    assert entry["subject"] == person_digest("default", "session", "s-1")


def test_verify_tells_of_a_change(audited: Audited) -> None:
    arguments = ["audit", "verify", "--data", str(audited.data)]
    done = penstock(*arguments, "--json")
    assert done.returncode == 0
    [own] = [chain for chain in json.loads(done.stdout) if chain["tenant"] == "default"]
    head = f"{own['number']}:{own['hash']}"
    assert penstock(*arguments, "--head", head).returncode == 0
    other = penstock(*arguments, "--head", f"{own['number']}:{'0' * 64}")
    assert (other.returncode, "is another one than when" in other.stderr) == (1, True)
    assert penstock(*arguments, "--head", "nonsense").returncode == 2
    database = Database.of(load_settings(audited.data, environment={}))
    third = (audit_entry.c.tenant == "default") & (audit_entry.c.number == 3)
    with database.write() as connection:
        actor = connection.scalar(sa.select(audit_entry.c.actor).where(third))
        connection.execute(sa.update(audit_entry).where(third).values(actor="nobody"))
    done = penstock(*arguments)
    assert done.returncode == 1
    assert "default: entry 3 was altered: its hash" in done.stderr
    with database.write() as connection:
        connection.execute(sa.update(audit_entry).where(third).values(actor=actor))
    database.close()
    assert penstock(*arguments).returncode == 0
