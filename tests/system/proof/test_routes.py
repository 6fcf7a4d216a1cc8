"""Proofs over HTTP, and as commands that ask a service."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.access.keys import create_key
from penstock.backends.audit.chain import entries_of
from penstock.core.lake_keys import PublicKey
from penstock.registry.checkpoints.tables import checkpoint
from penstock_jobs.loop.tables import loop_cycle, loop_stage
from penstock_jobs.simulator.demo.server import running_server
from tests.room.proof.conftest import DIGEST, ProvenLake
from tests.support.commands import penstock


def test_a_service_proves_the_checkpoints_of_a_tenant(
    proven: ProvenLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = proven.lake.database
    reader, secret = create_key(database, "read", "default")
    _, stranger = create_key(database, "read", "acme")
    with running_server(proven.data) as server:
        with server.client(secret) as client:
            answer = client.get("/v1/checkpoints/ckpt-2/proof").json()
            key = client.get("/v1/signing-key").json()
        with server.client(stranger) as client:
            assert client.get("/v1/checkpoints/ckpt-2/proof").status == 404
        monkeypatch.setenv("PENSTOCK_KEY", secret)
        file = tmp_path / "proof.json"
        file.write_text(penstock("prove", "ckpt-2", "--url", server.url).stdout)
        verified = penstock("prove", "--verify", str(file), "--url", server.url, "--json")
        assert (verified.returncode, json.loads(verified.stdout)["differences"]) == (0, [])
    public = PublicKey.of_pem(key["pem"].encode(), "")
    assert public.name == key["key"]
    assert public.has_signed(answer)
    assert public.has_signed(json.loads(file.read_bytes()))
    actors = {entry.actor for entry in entries_of(database, "default", action="prove")}
    assert f"key {reader.id}" in actors


def test_training_by_a_loop_is_told_with_its_attempt_and_inputs(proven: ProvenLake) -> None:
    key = {"tenant": "default", "loop": "nightly"}
    cycle = {"number": 3, "channel": "production", "file_digest": "", "budget_s": 60, "why": ""}
    of_cycle = {"parent": "ckpt-1", "checkpoint": "ckpt-2", "opened_at": 1}
    stage = {"cycle": 3, "stage": "train", "position": 2, "state": "done", "epoch": 2}
    done = {"inputs": "{}", "inputs_digest": "sha256:ab", "result": json.dumps({"digest": DIGEST})}
    with proven.lake.database.write() as connection:
        connection.execute(sa.insert(loop_cycle).values(**key, **cycle, **of_cycle))
        connection.execute(sa.insert(loop_stage).values(**key, **stage, **done))
    document = proven.proof()
    [training] = document["training"]
    assert (training["loop"], training["cycle"], training["attempt"]) == ("nightly", 3, 2)
    assert (training["digest"], training["inputs"]) == (DIGEST, "sha256:ab")
    assert [gap["of"] for gap in document["gaps"] if gap["part"] == "training"] == ["ckpt-1"]


def test_a_digest_that_was_edited_since_is_found(proven: ProvenLake, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proven.proof()))
    with proven.lake.database.write() as connection:
        mine = checkpoint.c.name == "ckpt-2"
        connection.execute(sa.update(checkpoint).where(mine).values(digest="sha256:" + "9" * 64))
    verified = penstock("prove", "--verify", str(file), "--data", str(proven.data), "--json")
    found = json.loads(verified.stdout)
    assert found["genuine"]
    assert any("digest of ckpt-2 was" in each for each in found["differences"])
