"""A shard as a data set for the Hub."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.manifest import StoredShard
from penstock_jobs.shards.publication import ConsentWithdrawn, publish_shard
from tests.support.export_rows import talked
from tests.support.shards.making import make_shard, stored_in


def shard_in(folder: Path) -> StoredShard:
    store = FileStore(folder)
    rows = [talked("g1"), talked("g2", split="eval"), talked("g3", loss_weight=0.0)]
    secret = json.loads(rows[0]["messages"])
    secret[1]["content"] = "the key is [SECRET:aws_key:0123456789abcdef]"
    rows[0]["messages"] = json.dumps(secret, separators=(",", ":"))
    return stored_in(store, make_shard(store, rows))


def test_the_conversations_and_what_is_said_of_them(tmp_path: Path) -> None:
    shard = shard_in(tmp_path / "lake")
    report = publish_shard(shard, "apache-2.0", tmp_path / "out", set())
    assert (report.rows, report.left_out) == (2, {"not_trained": 1})
    (train,) = (tmp_path / "out" / "data").glob("train-*.parquet")
    (row,) = pq.read_table(train).to_pylist()
    assert [message["role"] for message in row["messages"]][:2] == ["system", "user"]
    card = (tmp_path / "out" / "README.md").read_text()
    for told in (
        "license: apache-2.0\n", "path: 'data/train-*.parquet'", "path: 'data/eval-*.parquet'",
        shard.id, "| not_trained | 1 |", "| SECRET:aws_key | 1 |",
    ):  # fmt: skip
        assert told in card


def test_a_shard_with_withdrawn_consent_stays_here(tmp_path: Path) -> None:
    with pytest.raises(ConsentWithdrawn, match="2 sessions"):
        publish_shard(shard_in(tmp_path / "lake"), "other", tmp_path / "out", {"a", "b"})
    with pytest.raises(InvalidInput, match="look like cc-by"):
        publish_shard(shard_in(tmp_path / "lake"), "MIT License", tmp_path / "out", set())
    assert not (tmp_path / "out").exists()
