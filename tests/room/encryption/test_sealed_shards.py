"""Shards of a lake whose files are sealed: its readers have the bytes that a clear lake has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.encryption.sealed_store import SealedStore
from penstock.errors import InvalidInput
from penstock.execution.calls import InlineExecutor
from penstock.execution.processes import ProcessExecutor
from penstock.lake.backup import back_up, restore
from penstock.lake.key_rotation import rotate_data_key
from penstock.lake.verification import verify
from penstock.safe_names import tenant_folder
from penstock.shards.errors import ShardDamaged, ShardSealed
from penstock.shards.files import read_rows
from penstock.shards.manifest import stored_shard
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import ShardBuild, build_shard
from penstock_jobs.shards.recipe import Recipe
from tests.room.encryption.test_key_services import new_master, write_private
from tests.support.engine_lake import DAY_US, engine_recipe, talk
from tests.support.lakes import START_US, HandLake, hand_lake

MARKER = "PLANTED-MARKER-4712"
TENANT = "acme"
SESSIONS = 6


@pytest.fixture
def masters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Also of readers, who have no settings but those around them."""
    masters = write_private(tmp_path / "masters", new_master())
    monkeypatch.setenv("PENSTOCK_ENCRYPTION", "file")
    monkeypatch.setenv("PENSTOCK_ENCRYPTION_KEY_FILE", str(masters))
    return masters


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return engine_recipe(tmp_path / "recipes")


@pytest.fixture
def sealed(tmp_path: Path, masters: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data", encryption="file", encryption_key_file=str(masters)) as lake:
        yield lake


def fill(lake: HandLake) -> None:
    for number in range(SESSIONS):
        lake.send(talk(f"{MARKER}-{number}", number), TENANT)
    lake.writer().drain()
    work = RunRequest(find_definition())
    run(lake.lake, InlineExecutor(), work, now_us=START_US + DAY_US)


def built(lake: HandLake, recipe: Recipe) -> ShardBuild:
    return build_shard(lake.lake, InlineExecutor(), recipe, tenant=TENANT)


def marked_files(data: Path) -> list[str]:
    files = [path for path in (data / "lake").rglob("*") if path.is_file()]
    assert any("shards" in path.parts for path in files)
    return [str(path) for path in files if MARKER.encode() in path.read_bytes()]


def read(place: Path | str, shard: ShardBuild, **how: Any) -> set[str]:
    how = {"tenant": TENANT, "columns": ["session_id", "input_ids"]} | how
    with penstock.read_shard(place, shard.stored.id, **how) as reader:
        return {session for batch in reader for session in batch["session_id"]}


def test_nothing_of_it_is_seen_and_all_its_readers_read_it(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    fill(sealed)
    shard = built(sealed, recipe)
    lake, data = sealed.lake, tmp_path / "data"
    assert isinstance(lake.store, SealedStore)
    names = [stored.name for stored in lake.store.list("shards")]
    assert len(names) == 2
    keys = {lake.store.key_of(name) for name in names}
    assert keys == {lake.store.keys.current(tenant_folder(TENANT)).id}
    assert marked_files(data) == []
    assert len(read(data, shard)) == SESSIONS
    assert verify_shard(shard.stored).problems == []
    assert verify(lake).findings == []
    assert sealed.rows("select count(*) as n from samples", tenant=TENANT) == [{"n": SESSIONS}]
    assert not (data / "cache").exists(), "no copy of it is clear"
    assert marked_files(data) == []


def test_it_is_the_shard_that_a_clear_lake_builds(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    fill(sealed)
    with hand_lake(tmp_path / "clear", encryption="off") as clear:
        fill(clear)
        expected, own = built(clear, recipe), built(sealed, recipe)
        assert own.stored.id == expected.stored.id
        for one, other in zip(read_rows(own.stored), read_rows(expected.stored), strict=True):
            assert one.equals(other)
    assert marked_files(tmp_path / "clear")


def test_processes_of_a_build_seal_what_they_stage(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    fill(sealed)
    with ProcessExecutor(workers=1, attempts_max=1) as executor:
        seen: list[str] = []
        build_shard(
            sealed.lake, executor, recipe, tenant=TENANT,
            follow=lambda _done, _of: seen.extend(marked_files(tmp_path / "data")),
        )  # fmt: skip
    assert seen == []


def test_without_the_lake_it_does_not_open(
    sealed: HandLake, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sealed)
    shard = built(sealed, recipe)
    with pytest.raises(ShardSealed, match="from the service"):
        read((tmp_path / "data" / "lake").as_uri(), shard)
    monkeypatch.setenv("PENSTOCK_ENCRYPTION", "off")
    with pytest.raises(ShardSealed, match="settings of encryption"):
        read(tmp_path / "data", shard)


def test_its_keys_are_in_memory_when_reading_begins(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    """A long run of training does not depend on the database."""
    fill(sealed)
    shard = built(sealed, recipe)
    reader = penstock.read_shard(tmp_path / "data", shard.stored.id, columns=["session_id"])
    sealed.lake.close()
    for path in (tmp_path / "data").glob("penstock.db*"):
        path.unlink()
    with reader:
        assert len([session for batch in reader for session in batch["session_id"]]) == SESSIONS


def test_copies_are_made_where_somebody_names_a_place_for_them(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    fill(sealed)
    shard, data = built(sealed, recipe), tmp_path / "data"
    hows: list[dict[str, Any]] = [{"cache": True}, {"column_copies": True}]
    for how in hows:
        with pytest.raises(InvalidInput, match="copies are not sealed"):
            read(data, shard, **how)
    hows = [{}, {"cache": False}, {"cache": tmp_path / "mine"}]
    for how in hows:
        assert len(read(data, shard, **how)) == SESSIONS
    assert len(read(data, shard, cache=tmp_path / "mine", column_copies=True)) == SESSIONS
    assert list((tmp_path / "mine").glob("*.parquet"))
    assert not (data / "cache").exists()


def test_one_of_before_stays_readable(recipe: Recipe, tmp_path: Path, masters: Path) -> None:
    with hand_lake(tmp_path / "data", encryption="off") as lake:
        fill(lake)
        shard = built(lake, recipe)
    settings = {"encryption": "file", "encryption_key_file": str(masters)}
    with hand_lake(tmp_path / "data", **settings) as lake:
        stored = stored_shard(lake.lake.store, shard.stored.folder, shard.stored.id)
        assert verify_shard(stored).problems == []
        assert len(read(tmp_path / "data", shard)) == SESSIONS


def test_a_key_that_a_shard_needs_is_kept(sealed: HandLake, recipe: Recipe, tmp_path: Path) -> None:
    fill(sealed)
    shard = built(sealed, recipe)
    assert rotate_data_key(sealed.lake, TENANT).deleted == 0
    assert len(read(tmp_path / "data", shard)) == SESSIONS


def test_a_changed_file_is_damage(sealed: HandLake, recipe: Recipe, tmp_path: Path) -> None:
    fill(sealed)
    shard = built(sealed, recipe)
    path = tmp_path / "data" / "lake" / shard.stored.path(shard.manifest.files[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert verify_shard(shard.stored).problems
    with pytest.raises(ShardDamaged):
        read(tmp_path / "data", shard)


def test_a_backup_holds_it_sealed_and_gives_it_back(
    sealed: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    fill(sealed)
    shard = built(sealed, recipe)
    back_up(sealed.lake, tmp_path / "copy")
    files = list((tmp_path / "copy").rglob("part-*.parquet"))
    assert files
    assert not [path for path in files if MARKER.encode() in path.read_bytes()]
    restore(tmp_path / "copy", tmp_path / "again")
    assert len(read(tmp_path / "again", shard)) == SESSIONS
