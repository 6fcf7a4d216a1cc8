"""Shards of the first format: what was made before is read and proven as it was."""

import hashlib
from pathlib import Path

import penstock
from penstock.shards.files import read_rows
from penstock.shards.manifest import StoredShard, shared_folder, stored_shard
from penstock.shards.schema import FIRST_SHARD_ROWS, SHARD_ROWS
from penstock.shards.validation import verify_shard
from penstock.storage import FileStore
from penstock_jobs.shards.export import all_exporters, export_shard
from tests.support.shards.making import make_groups, table_of, with_routes

MADE = Path(__file__).parent / "first_format"
ID = "sha256:35b2ff7372eb01e432a8419036a35fdde2841ef5c40ea142b033bf0c68dc900c"
ROWS = with_routes(table_of(make_groups(3, seed=1, rollouts=(1, 2), tokens=30)))


def first_shard() -> StoredShard:
    """It was built before tenants had folders."""
    return stored_shard(FileStore(MADE), shared_folder(ID), ID)


def test_it_has_its_id_and_is_proven() -> None:
    shard = first_shard()
    manifest = shard.manifest
    assert (manifest.id, manifest.format) == (ID, 1)
    assert "sha256:" + hashlib.sha256(manifest.canonical()).hexdigest() == ID
    proof = verify_shard(shard)
    assert proof.problems == []
    assert proof.samples == ROWS.num_rows


def test_its_rows_are_the_same_and_lack_what_joined_later() -> None:
    tables = list(read_rows(first_shard()))
    assert all(rows.schema.equals(SHARD_ROWS) for rows in tables)
    found = [row for rows in tables for row in rows.to_pylist()]
    assert found == ROWS.to_pylist()
    joined = set(SHARD_ROWS.names) - set(FIRST_SHARD_ROWS.names)
    assert joined == {"temperature_runs", "tokenizer_id", "license", "preferences"}
    assert {row[name] is None for row in found for name in joined} == {True}


def test_a_trainer_reads_it() -> None:
    columns = ["input_ids", "reward", "license", "temperature_runs", "routed_experts"]
    reader = penstock.read_shard(
        MADE.as_uri(), ID, shuffle=False, batch_samples=100, columns=columns, cache=False
    )
    with reader:
        [batch] = list(reader)
    expected = sum(len(row["input_ids"]) for row in ROWS.to_pylist())
    assert len(batch["input_ids"].values) == expected
    assert list(batch["license"]) == [None] * ROWS.num_rows
    assert len(batch["temperature_runs.start"].values) == 0


def test_it_is_exported(tmp_path: Path) -> None:
    for target in ("prime-rl", "verl", "trl-grpo", "skyrl"):
        assert target in all_exporters()
        report = export_shard(first_shard(), target, tmp_path / target)
        assert report.rows == ROWS.num_rows
