"""Shards lie in their tenants' folders: what one tenant has, builds or drops is no other's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

import penstock
from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.backends.database.engine import Database
from penstock.backends.execution.calls import InlineExecutor
from penstock.core.files import tenant_folder
from penstock.lake.buckets import SessionId
from penstock.lake.catalog import current, name_snap
from penstock.lake.upkeep.verification import verify
from penstock.shards.manifest import StoredShard, stored_shard
from penstock.shards.registered_shards import drop_shard, find_shard, list_shards, marks_of
from penstock.shards.shard import ShardGone, ShardMissing
from penstock.shards.tables import shard_file
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.registration import mark_sessions
from tests.support.engine_lake import DAY_US, engine_recipe, files_of, talk
from tests.support.lakes import START_US, HandLake, hand_lake

TENANTS = ("acme", "Bolt & Co")


class Twins(NamedTuple):
    """Two tenants with the same sessions, and each one's shard of them."""

    lake: HandLake
    shards: dict[str, StoredShard]

    @property
    def data(self) -> Path:
        return self.lake.lake.settings.data

    @property
    def database(self) -> Database:
        return self.lake.lake.database

    def folder_files(self, tenant: str) -> list[str]:
        return sorted(name for name in files_of(self.lake) if f"/{tenant_folder(tenant)}/" in name)


@pytest.fixture(scope="module")
def built_twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twins")
    with hand_lake(folder / "data") as lake:
        for tenant in TENANTS:
            for number in range(4):
                lake.send(talk(f"s{number:02d}", number), tenant)
        lake.writer().drain()
        work = RunRequest(find_definition())
        run(lake.lake, InlineExecutor(), work, now_us=START_US + DAY_US)
        name_snap(lake.lake.database, "both", "both", current(lake.lake.database).snap, "")
        same = engine_recipe(folder / "recipes", ("seed = 3", 'seed = 3\nas_of = "both"'))
        for tenant in TENANTS:
            assert build_shard(lake.lake, InlineExecutor(), same, tenant=tenant).new
    return folder / "data"


@pytest.fixture
def twins(tmp_path: Path, built_twins: Path) -> Iterator[Twins]:
    shutil.copytree(built_twins, tmp_path / "data")
    with hand_lake(tmp_path / "data") as lake:
        known = [find_shard(lake.lake.database, tenant, "engine") for tenant in TENANTS]
        stored = [stored_shard(lake.lake.store, each.folder, each.id) for each in known]
        yield Twins(lake, dict(zip(TENANTS, stored, strict=True)))


def test_each_has_files_of_its_own_for_the_same_shard(twins: Twins) -> None:
    first, second = (twins.shards[tenant] for tenant in TENANTS)
    assert first.id == second.id
    for tenant in TENANTS:
        mine = twins.shards[tenant]
        assert mine.folder == f"shards/{tenant_folder(tenant)}/{mine.id[7:23]}"
        assert twins.folder_files(tenant) == [
            f"{mine.folder}/{name}" for name in ("manifest.json", "part-00000.parquet")
        ]
        assert verify_shard(mine).problems == []
        assert [each.folder for each in list_shards(twins.database, tenant)] == [mine.folder]
        [row] = twins.lake.rows("select count(*) as n from samples", tenant=tenant)
        assert row["n"] == mine.manifest.counts.samples
    assert verify(twins.lake.lake).findings == []


def test_what_becomes_of_one_does_not_touch_the_other(twins: Twins) -> None:
    mine, other = TENANTS
    id_ = twins.shards[mine].id
    mark_sessions(twins.lake.lake, [SessionId(mine, "s01")], "no_train")
    assert marks_of(twins.database, mine, id_) == [("s01", "no_train")]
    assert marks_of(twins.database, other, id_) == []
    marked = "select marked_sessions as n from shards"
    assert [twins.lake.rows(marked, tenant=tenant) for tenant in TENANTS] == [
        [{"n": 1}],
        [{"n": 0}],
    ]
    drop_shard(twins.lake.lake, mine, id_, by="tester")
    assert [name.rpartition("/")[2] for name in twins.folder_files(mine)] == ["gone.json"]
    assert verify_shard(twins.shards[other]).problems == []
    with pytest.raises(ShardGone):
        penstock.read_shard(twins.data, id_, tenant=mine)
    with penstock.read_shard(twins.data, id_, tenant=other) as reader:
        assert sum(len(batch["reward"]) for batch in reader) == 4


def test_erasing_of_one_leaves_the_other(twins: Twins) -> None:
    mine, other = TENANTS
    scope = ErasureScope(mine, "session", "s02", START_US + 10**12)
    carry_out(twins.lake.lake, order_erasure(twins.lake.lake, scope, reason="", by="tester"))
    assert [name.rpartition("/")[2] for name in twins.folder_files(mine)] == ["gone.json"]
    assert verify_shard(twins.shards[other]).problems == []
    with twins.database.read() as connection:
        owners = connection.scalars(sa.select(shard_file.c.tenant).distinct()).all()
    assert owners == [other]


def test_a_reader_names_the_tenant_or_has_the_directory(twins: Twins) -> None:
    url, id_ = (twins.data / "lake").as_uri(), twins.shards[TENANTS[0]].id
    for tenant in TENANTS:
        with penstock.read_shard(url, id_, tenant=tenant, cache=False) as reader:
            assert sum(len(batch["reward"]) for batch in reader) == 4
    with pytest.raises(ShardMissing, match="t-default"):
        penstock.read_shard(url, id_)
    with penstock.read_shard(twins.data, id_) as reader:
        assert sum(len(batch["reward"]) for batch in reader) == 4
