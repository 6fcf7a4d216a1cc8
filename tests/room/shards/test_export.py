"""Exports in general: what is written, where, and what is refused."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.manifest import Manifest
from penstock.shards.shard import ShardDamaged
from penstock_jobs.shards import export as outputs
from penstock_jobs.shards.export import EXPORT_NAME, all_exporters, export_shard
from tests.support.export_rows import Row, hinted, in_order, stored, talked
from tests.support.repository import ROOT
from tests.support.shards.making import own_folder, stored_in

TARGETS = [
    "areal", "atif", "hints-jsonl", "messages-jsonl", "messages-parquet", "nemo-rl", "prime-rl",
    "skyrl", "slime", "tinker", "trl-dpo", "trl-grpo", "trl-kto", "trl-sdft", "trl-sdpo", "trl-sft",
    "verl",
]  # fmt: skip
DOCS = ROOT / "docs" / "training.md"


def rows() -> list[Row]:
    some = [
        hinted(talked(f"g{group}", rollout, branch=branch, reward=rollout - 1.0))
        for group in range(6)
        for rollout in range(2)
        for branch in range(2)
    ]
    return in_order([*some, talked("h", rendered=True), talked("i", loss_weight=0.0)])


@pytest.fixture
def shard(tmp_path: Path) -> tuple[FileStore, Manifest]:
    store = FileStore(tmp_path / "store")
    return store, stored(store, rows())


def digests(out: Path) -> dict[str, str]:
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_each_target_has_a_row_in_the_docs() -> None:
    assert list(all_exporters()) == TARGETS
    docs = DOCS.read_text("utf-8")
    for name in TARGETS:
        assert f"\n| `{name}` | " in docs


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bytes_come_out_twice(
    target: str, shard: tuple[FileStore, Manifest], tmp_path: Path
) -> None:
    told = [export_shard(stored_in(*shard), target, tmp_path / name) for name in ("one", "two")]
    assert told[0] == told[1]
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "store", "two"]


def test_what_was_left_out_is_said_beside_the_files(
    shard: tuple[FileStore, Manifest], tmp_path: Path
) -> None:
    told = export_shard(stored_in(*shard), "trl-grpo", tmp_path / "out")
    assert (told.rows, told.left_out) == (24, {"no_logprobs": 1, "not_trained": 1})
    beside = json.loads((tmp_path / "out" / EXPORT_NAME).read_text())
    assert beside["shard"] == shard[1].id
    assert (beside["target"], beside["version"]) == ("trl-grpo", 1)
    assert beside["written_for"] == "TRL 1.16"
    assert (beside["rows"], beside["left_out"]) == (told.rows, told.left_out)
    assert beside["files"] == told.files


def test_a_directory_in_use_is_refused(shard: tuple[FileStore, Manifest], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    before = digests(tmp_path)
    with pytest.raises(InvalidInput, match="not empty"):
        export_shard(stored_in(*shard), "skyrl", tmp_path)
    with pytest.raises(InvalidInput, match="it is a file"):
        export_shard(stored_in(*shard), "skyrl", tmp_path / "mine.txt")
    assert digests(tmp_path) == before


def test_the_nearest_target_is_named(shard: tuple[FileStore, Manifest], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did you mean trl-sft"):
        export_shard(stored_in(*shard), "trl_sft", tmp_path / "out")


def test_nothing_is_left_where_a_file_is_damaged(
    shard: tuple[FileStore, Manifest], tmp_path: Path
) -> None:
    store, manifest = shard
    path = Path(store.address(f"{own_folder(manifest.id)}/{manifest.files[-1].name}"))
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-1])
    for target in TARGETS:
        with pytest.raises(ShardDamaged):
            export_shard(stored_in(store, manifest), target, tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


def test_row_groups_are_bounded(
    shard: tuple[FileStore, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "ROW_GROUP_BYTES", 400)
    export_shard(stored_in(*shard), "skyrl", tmp_path / "out")
    file = pq.ParquetFile(tmp_path / "out" / "train" / "train-00000.parquet")
    assert file.num_row_groups > 1
