"""A shard that somebody prepared touches nothing outside of the folders that were meant."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.backends.storage.object_store import FileStore, ObjectStore
from penstock.core.files import NameUnsafe
from penstock.shards.local_copies import LocalCopies
from penstock.shards.manifest import MANIFEST_NAME, Manifest, PartFile, read_manifest
from penstock.shards.reader import read_shard
from penstock.shards.shard import ShardDamaged
from penstock_jobs.shards.export import ExportOutput, export_shard
from tests.support.shards.making import make_groups, make_shard, own_folder, stored_in

Document = dict[str, Any]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    victim = tmp_path / "victim" / "x.lock"
    victim.parent.mkdir()
    victim.write_text("precious")
    return victim


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return FileStore(tmp_path / "store")


def forged(store: ObjectStore, fields: Document) -> str:
    """The id of a shard whose manifest says something else of a part, with its own digest."""
    made = make_shard(store, make_groups(3))
    document = msgspec.json.decode(made.canonical())
    document["files"][0] |= fields
    content = msgspec.json.encode(document)
    shard_id = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with store.create(f"{own_folder(shard_id)}/{MANIFEST_NAME}") as file:
        file.write(content)
    return shard_id


HOSTILE: list[Document] = [
    {"sha256": "../../victim/x"},
    {"sha256": "sha256:" + "0" * 64},
    {"name": "../../../victim/x.lock"},
    {"name": "/etc/passwd"},
    {"name": "part\0.parquet"},
    {"routes": {"name": "r", "sha256": "../../victim/x", "bytes": 8, "row_groups": [1]}},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=range(len(HOSTILE)))
def test_every_reader_of_a_forged_manifest_refuses_it(
    store: ObjectStore, tmp_path: Path, victim: Path, fields: Document
) -> None:
    shard_id = forged(store, fields)
    for read in (
        lambda: read_manifest(store, own_folder(shard_id), shard_id),
        lambda: list(read_shard(f"file://{tmp_path}/store", shard_id, cache=tmp_path / "cache")),
    ):
        with pytest.raises(ShardDamaged, match="cannot be used"):
            read()
    assert victim.read_text() == "precious"


def test_a_copy_has_the_name_of_a_checksum_or_none(
    store: ObjectStore, tmp_path: Path, victim: Path
) -> None:
    part = make_shard(store, make_groups(3)).files[0]
    fields = msgspec.structs.asdict(part)
    msgspec.structs.force_setattr(part, "sha256", "../../victim/x")
    copies = LocalCopies(tmp_path / "cache" / "shards", 1 << 30)
    with pytest.raises(NameUnsafe):
        copies.find(store, "x", part)
    with pytest.raises(NameUnsafe):
        PartFile(**fields | {"name": "../x"})
    assert victim.read_text() == "precious"


def test_a_split_of_a_shard_names_no_file_elsewhere(
    store: ObjectStore, tmp_path: Path, victim: Path
) -> None:
    rows = [row | {"split": "../../victim/x"} for row in make_groups(3)]
    shard: Manifest = make_shard(store, rows)
    for target in ("messages-jsonl", "trl-sft"):
        with pytest.raises(NameUnsafe):
            export_shard(stored_in(store, shard), target, tmp_path / "out" / target)
    assert [path.name for path in victim.parent.iterdir()] == ["x.lock"]
    assert not (tmp_path / "out" / "trl-sft").exists()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_an_exporter_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    with ExportOutput(tmp_path / "out") as output:
        with pytest.raises(NameUnsafe):
            output.line(name, b"{}")
        with pytest.raises(NameUnsafe):
            output.file(name, [b""])
        with pytest.raises(NameUnsafe):
            output.table(name, pa.table({"a": [1]}))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
