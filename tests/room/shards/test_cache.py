"""Shards in a store that is elsewhere, and their local copies."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.backends.storage import open_store
from penstock.backends.storage.object_store import FileStore, ObjectStore, StoreUnreachable
from penstock.core.settings import Settings
from penstock.shards.local_copies import LocalCopies
from penstock.shards.manifest import Manifest, part_name
from penstock.shards.reader import ShardReader, read_shard
from penstock.shards.shard import ShardDamaged
from tests.support.servers.s3 import S3Server
from tests.support.shards.making import make_groups, make_shard, own_folder
from tests.support.shards.reading import sequence

ROWS = make_groups(60)


class Far(NamedTuple):
    url: str
    store: ObjectStore
    manifest: Manifest
    copies: Path

    def reader(self, **how: Any) -> ShardReader:
        given: dict[str, Any] = {"seed": 1, "cache": self.copies} | how
        return read_shard(self.url, self.manifest.id, **given)

    def expected(self) -> list[str]:
        return sequence(self.reader(cache=False))


@pytest.fixture(params=["files", "s3"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Far:
    if request.param == "files":
        url = f"file://{tmp_path}/store"
    else:
        server: S3Server = request.getfixturevalue("s3")
        url = server.store_url(server.new_prefix())
    store = open_store(Settings(data=tmp_path, store_url=url))
    return Far(url, store, make_shard(store, ROWS), tmp_path / "copies")


def copies_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))


def test_a_shard_is_read_through_copies_and_without(far: Far) -> None:
    expected = far.expected()
    assert len(expected) == len(ROWS)
    assert copies_in(far.copies) == []
    assert sequence(far.reader()) == expected
    assert [one.stem for one in copies_in(far.copies)] == sorted(
        one.sha256 for one in far.manifest.files
    )


def test_what_was_copied_is_not_fetched_again_unless_it_is_damaged(far: Far) -> None:
    expected = sequence(far.reader())
    contents = {path: path.read_bytes() for path in copies_in(far.copies)}
    for path, content in contents.items():
        path.write_bytes(b"x" * len(content))
    assert sequence(far.reader()) == expected
    assert {path: path.read_bytes() for path in copies_in(far.copies)} == contents
    for part in far.manifest.files:
        far.store.delete(f"{own_folder(far.manifest.id)}/{part.name}")
    assert sequence(far.reader()) == expected
    with pytest.raises(ShardDamaged, match="missing"):
        sequence(far.reader(cache=False))


def test_a_file_that_is_not_what_the_manifest_says_is_no_copy(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    manifest = make_shard(store, ROWS)
    part = manifest.files[0]
    path = f"{own_folder(manifest.id)}/{part_name(0)}"
    Path(store.address(path)).write_bytes(b"x" * part.bytes)
    with pytest.raises(ShardDamaged, match="its checksum is"):
        LocalCopies(tmp_path / "copies", 10**9).find(store, path, part)
    assert copies_in(tmp_path / "copies") == []


def test_the_least_recently_used_copies_go(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    manifest = make_shard(store, ROWS)
    one, two, three = manifest.files[:3]
    room = one.bytes + two.bytes + three.bytes - 1
    copies = LocalCopies(tmp_path / "copies", room)

    def find(part: Any) -> None:
        copies.find(store, f"{own_folder(manifest.id)}/{part.name}", part)

    for age, part in enumerate((one, two)):
        find(part)
        os.utime(tmp_path / "copies" / f"{part.sha256}.parquet", ns=(age, age))
    find(one)
    find(three)
    kept = {path.stem for path in copies_in(tmp_path / "copies")}
    assert kept == {one.sha256, three.sha256}


def test_readers_of_one_machine_fetch_a_file_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    manifest = make_shard(store, ROWS)
    opened: list[str] = []

    class Counting(FileStore):
        def open(self, name: str) -> Any:
            opened.append(name)
            return super().open(name)

    counting = Counting(tmp_path / "store")
    part = manifest.files[0]
    path = f"{own_folder(manifest.id)}/{part.name}"
    with ThreadPoolExecutor(6) as pool:
        for _ in range(6):
            pool.submit(LocalCopies(tmp_path / "copies", 10**9).find, counting, path, part)
    assert opened == [path]


def test_copies_lie_in_the_data_directory_of_a_far_store(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.store_url(s3.new_prefix())
    store = open_store(Settings(data=tmp_path, store_url=url))
    manifest = make_shard(store, ROWS)
    monkeypatch.setenv("PENSTOCK_STORE_URL", url)
    reader = read_shard(tmp_path, manifest.id)
    assert len(sequence(reader)) == len(ROWS)
    assert len(copies_in(tmp_path / "cache" / "shards")) == len(manifest.files)


def test_a_store_that_is_not_there_is_told(s3: S3Server, tmp_path: Path) -> None:
    url = s3.store_url(s3.new_prefix(), "http://127.0.0.1:9")
    with pytest.raises(StoreUnreachable):
        read_shard(url, "sha256:" + "0" * 64)
