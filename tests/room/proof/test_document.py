"""What stands in a proof, and what it does not tell."""

import json
from typing import Any

import sqlalchemy as sa

from penstock.access.tables import erasure
from penstock.backends.audit.chain import entries_of
from penstock.core.lake_keys import SigningKey, canonical
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.tables import checkpoint
from tests.room.proof.conftest import DIGEST, ProvenLake
from tests.support.engine_lake import SESSIONS
from tests.support.lakes import make_event


def gaps_of(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(gap["part"], gap["of"]) for gap in document["gaps"]}


def test_it_goes_from_consent_to_replicas(proven: ProvenLake) -> None:
    document = proven.proof()
    assert SigningKey.of(proven.lake.settings).public.has_signed(document)
    manifest = proven.shard.manifest
    [shard] = document["shards"]
    assert (shard["shard"], shard["trained"], shard["state"]) == (manifest.id, ["ckpt-2"], "there")
    assert [file["digest"] for file in shard["files"]] == [
        f"sha256:{part.sha256}" for part in manifest.files
    ]
    assert shard["consent_rule"] == "not_denied"
    assert shard["sessions"] == SESSIONS
    assert [parent["name"] for parent in document["parents"]] == ["ckpt-1"]
    [verdict] = document["verdicts"]
    assert json.loads(verdict["document"])["candidate"]["digest"] == DIGEST
    [change] = document["promotions"]
    assert (change["actor"], change["version"], change["verdict"]) == (
        "an-engineer",
        1,
        verdict["verdict"],
    )
    [replica] = document["replicas"]
    assert (replica["replica"], replica["digest"]) == ("engine-a", DIGEST)
    assert document["audit"]["number"] > 0


def test_nobody_is_named(proven: ProvenLake) -> None:
    text = canonical(proven.proof()).decode()
    assert not [f"s{number:02d}" for number in range(SESSIONS) if f'"s{number:02d}"' in text]
    assert '"u1"' not in text


def test_what_cannot_be_shown_is_named(proven: ProvenLake) -> None:
    assert gaps_of(proven.proof()) == {
        ("shards", "ckpt-1"),
        ("training", "ckpt-1"),
        ("training", "ckpt-2"),
        ("verdicts", proven.proof()["verdicts"][0]["verdict"]),
        ("promotions", "production"),
    }
    never_served = gaps_of(proven.proof("ckpt-1"))
    assert {("verdicts", "ckpt-1"), ("promotions", "ckpt-1"), ("replicas", "ckpt-1")} < never_served


def test_a_lineage_that_is_broken_and_a_history_that_was_edited_are_named(
    proven: ProvenLake,
) -> None:
    with proven.lake.database.write() as connection:
        connection.execute(sa.delete(checkpoint).where(checkpoint.c.name == "ckpt-1"))
        connection.exec_driver_sql("DROP TRIGGER keep_channel_change_update")
        connection.execute(sa.update(channel_change).values(actor="nobody"))
    document = proven.proof()
    assert ("parents", "ckpt-2") in gaps_of(document)
    whys = [gap["why"] for gap in document["gaps"] if gap["part"] == "promotions"]
    assert any("was altered" in why for why in whys)


def test_files_of_a_shard_that_are_gone_or_changed_are_named(proven: ProvenLake) -> None:
    [file] = (proven.data / "lake" / "shards").rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert proven.proof()["shards"][0]["state"] == "there"  # of the same size
    [shard] = proven.proof(read_files=True)["shards"]
    assert shard["state"] == "damaged"
    assert "checksum" in shard["problems"][0]
    file.unlink()
    assert proven.proof()["shards"][0]["problems"] == [f"{file.name} is missing"]


def test_what_was_erased_since_is_told_and_the_digests_stay(proven: ProvenLake) -> None:
    [before] = proven.proof()["shards"]
    report = proven.erase("s03")
    document = proven.proof()
    [shard] = document["shards"]
    assert shard["state"] == "erased"
    assert (shard["sessions"], shard["files"]) == (before["sessions"], before["files"])
    [erased] = document["erasures"]
    assert (erased["erasure"], erased["shards"]) == (report["erasure"], [before["shard"]])
    with proven.lake.database.write() as connection:  # let go by its age
        connection.execute(sa.delete(erasure))
    document = proven.proof()
    assert document["erasures"] == []
    assert ("erasures", before["shard"]) in gaps_of(document)


def test_consent_that_was_taken_back_is_told(proven: ProvenLake) -> None:
    denied = make_event("s04", 500, "session_start", payload={"consent": "no_train"})
    proven.hand.store([denied])
    [withdrawn] = proven.proof()["consent_withdrawn"]
    assert (withdrawn["reason"], withdrawn["sessions"]) == ("no_train", 1)


def test_a_replica_with_other_files_is_a_gap(proven: ProvenLake) -> None:
    proven.load("engine-b", "sha256:" + "2" * 64)
    assert ("replicas", "engine-b") in gaps_of(proven.proof())


def test_the_audit_says_who_was_given_a_proof(proven: ProvenLake) -> None:
    proven.proof()
    entries = entries_of(proven.lake.database, "default", action="prove")
    assert (entries[0].actor, entries[0].subject) == ("tester", "checkpoint ckpt-2")
