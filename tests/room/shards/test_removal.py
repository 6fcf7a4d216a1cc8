"""Dropping a shard: its files go, and what it was stays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import penstock
from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.backends.audit.chain import entries_of
from penstock.core.endpoint import Caller
from penstock.core.metrics import Metrics
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import SessionId
from penstock.lake.client import LocalClient
from penstock.lake.upkeep.verification import verify
from penstock.registry.channels.history import chain_of
from penstock.registry.checkpoints.lineage import learners
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_shard
from penstock.shards.endpoints import DROP_SHARD, READ_SHARD_FILE, DropShard, ShardFileRequest
from penstock.shards.registered_shards import drop_shard, find_shard, finish_drops, marks_of
from penstock.shards.shard import ShardGoing, ShardGone, ShardNeeded, ShardUnknown
from penstock_jobs.loop.tables import loop_cycle, loop_stage
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.endpoints import SHOW_SHARD, ShardRequest
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.registration import mark_sessions
from tests.support.cut_off import CutOff
from tests.support.engine_lake import built, files_of
from tests.support.lakes import START_US, HandLake
from tests.support.shards.making import own_folder

TENANT = "default"


def drop(lake: HandLake, shard: ShardBuild, **how: Any) -> Any:
    return drop_shard(lake.lake, TENANT, shard.manifest.id, by="tester", **how)


def test_the_files_go_and_what_it_was_stays(lake: HandLake, shard: ShardBuild) -> None:
    id_ = shard.manifest.id
    before = find_shard(lake.lake.database, TENANT, id_)
    removal = drop(lake, shard, reason="replaced")
    assert removal.files == len(shard.manifest.files) + 1  # and the manifest
    assert removal.bytes == before.bytes
    [left] = files_of(lake)
    assert left.endswith("/gone.json")
    after = find_shard(lake.lake.database, TENANT, id_)
    assert (after.samples, after.tokens, after.gone) == (before.samples, before.tokens, "dropped")
    [row] = lake.rows("select samples, gone from shards")
    assert row == {"samples": before.samples, "gone": "dropped"}
    assert lake.rows("select count(*) as n from samples") == [{"n": 0}]
    assert verify(lake.lake).findings == []
    [entry] = entries_of(lake.lake.database, TENANT, action="drop")
    assert (entry.actor, entry.subject) == ("tester", id_)
    # Again, it changes nothing.
    assert drop(lake, shard).files == 0
    assert len(entries_of(lake.lake.database, TENANT, action="drop")) == 1
    with pytest.raises(ShardUnknown):
        drop_shard(lake.lake, "other", id_, by="tester")


def test_whoever_looks_for_it_is_told(lake: HandLake, shard: ShardBuild, tmp_path: Path) -> None:
    id_ = shard.manifest.id
    client = LocalClient(lake.lake, Caller(TENANT, "tester", is_local=True))
    dropped = client.call(
        DROP_SHARD, DropShard(shard=id_, reason="replaced by engine-2", force=True)
    )
    assert dropped.files == len(shard.manifest.files) + 1
    for place, name in ((tmp_path / "data", id_), (tmp_path / "data", "engine")):
        with pytest.raises(ShardGone, match=r"it was dropped at .*: replaced by engine-2"):
            penstock.read_shard(str(place), name)
    with pytest.raises(ShardGone):  # no database is asked here
        penstock.read_shard(f"file://{tmp_path}/data/lake", id_)
    details = client.call(SHOW_SHARD, ShardRequest(shard=id_))
    assert (details.gone, details.gone_why) == ("dropped", "replaced by engine-2")
    assert details.manifest["counts"]["sessions"] == 12
    with pytest.raises(ShardGone):
        client.call(READ_SHARD_FILE, ShardFileRequest(shard=id_, name="part-00000.parquet"))


def train(lake: HandLake, shard: ShardBuild, name: str) -> None:
    known = {"name": name, "tenant": TENANT, "digest": f"sha256:{name:0>64}", "uri": "/m"}
    known |= {"form": "whole", "state": "candidate", "checked": "verified", "note": ""}
    learned = {"tenant": TENANT, "checkpoint": name, "shard": shard.manifest.id}
    with lake.lake.database.write() as connection:
        by = {"registered_by": "tester", "registered_at": 1}
        connection.execute(sa.insert(checkpoint).values(**known, **by))
        connection.execute(sa.insert(checkpoint_shard).values(**learned))


def serve(lake: HandLake, name: str) -> None:
    change: dict[str, Any] = {"action": "promote", "checkpoint": name, "actor": "a", "reason": ""}
    with lake.lake.database.write() as connection:
        chain = chain_of(TENANT, "production")
        chain.append(connection, change | {"pinned": False, "overridden": False})


def test_it_is_refused_while_a_channel_points_at_what_was_trained_on_it(
    lake: HandLake, shard: ShardBuild, recipe: Callable[..., Recipe]
) -> None:
    train(lake, shard, "7")
    train(lake, shard, "8")
    serve(lake, "7")
    with pytest.raises(ShardNeeded, match="the channel production points at 7"):
        drop(lake, shard)
    assert find_shard(lake.lake.database, TENANT, shard.manifest.id).gone is None
    assert len(drop(lake, shard, force=True).needed) == 1
    trained = learners(lake.lake.database, TENANT, shard.manifest.id)
    assert [each.checkpoint for each in trained] == ["7", "8"]
    # What is served no more keeps nothing.
    serve(lake, "other")
    assert built(lake, recipe()).new
    assert drop(lake, shard).needed == []


def test_it_is_refused_while_a_cycle_is_about_it(lake: HandLake, shard: ShardBuild) -> None:
    of_cycle: dict[str, Any] = {"tenant": TENANT, "loop": "l"}
    cycle = of_cycle | {"number": 3, "channel": "production", "file_digest": "d", "budget_s": 1}
    stage = of_cycle | {"cycle": 3, "stage": "shard", "position": 1, "state": "done"}
    result = f'{{"shard": "{shard.manifest.id}"}}'
    with lake.lake.database.write() as connection:
        connection.execute(sa.insert(loop_cycle).values(**cycle, opened_at=1))
        connection.execute(sa.insert(loop_stage).values(**stage, result=result))
    with pytest.raises(ShardNeeded, match="cycle 3 of the loop l uses it"):
        drop(lake, shard)
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(loop_cycle).values(outcome="refused"))
    assert drop(lake, shard).needed == []


@contextmanager
def cut_off(lake: HandLake, at: str) -> Iterator[None]:
    """The process ends before it deletes a file whose name ends so."""
    store = lake.lake.store
    delete: Callable[[str], None] = store.delete

    def ending(name: str) -> None:
        if name.endswith(at):
            raise CutOff
        delete(name)

    store.delete = ending  # type: ignore[method-assign]
    try:
        with pytest.raises(CutOff):
            yield
    finally:
        store.delete = delete  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("at", "by_upkeep"), [("manifest.json", True), ("part-00000.parquet", False)]
)
def test_one_that_was_cut_off_is_ended(
    lake: HandLake, shard: ShardBuild, recipe: Callable[..., Recipe], at: str, *, by_upkeep: bool
) -> None:
    with cut_off(lake, at):
        drop(lake, shard, reason="old")
    assert find_shard(lake.lake.database, TENANT, shard.manifest.id).gone == "dropping"
    assert lake.rows("select count(*) as n from samples") == [{"n": 0}]
    with pytest.raises(ShardGoing):
        built(lake, recipe())
    if by_upkeep:
        assert finish_drops(lake.lake, Metrics()) is not None
        assert finish_drops(lake.lake, Metrics()) is None
    else:
        drop(lake, shard)
    known = find_shard(lake.lake.database, TENANT, shard.manifest.id)
    assert (known.gone, known.gone_why) == ("dropped", "old")
    assert [name for name in files_of(lake) if "/staging/" not in name] == [
        f"{own_folder(known.id)}/gone.json"
    ]
    again = built(lake, recipe())
    assert (again.manifest.id, again.new) == (shard.manifest.id, True)
    assert find_shard(lake.lake.database, TENANT, known.id).gone is None


def test_what_is_erased_or_denied_later_still_names_it(lake: HandLake, shard: ShardBuild) -> None:
    train(lake, shard, "7")
    drop(lake, shard)
    id_ = shard.manifest.id
    mark_sessions(lake.lake, [SessionId(TENANT, "s04")], "no_train")
    assert marks_of(lake.lake.database, TENANT_DEFAULT, id_) == [("s04", "no_train")]
    scope = ErasureScope(TENANT, "session", "s03", START_US + 10**12)
    order = order_erasure(lake.lake, scope, reason="", by="tester")
    assert carry_out(lake.lake, order)["seen_by"] == {"shards": [id_], "checkpoints": ["7"]}
    with pytest.raises(ShardGone, match="it was erased"):  # its query may have named somebody
        penstock.read_shard(str(lake.lake.settings.data), id_)
