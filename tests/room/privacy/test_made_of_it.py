"""What was made of erased sessions goes with them: rewards, labels, shards."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.events.event import TENANT_DEFAULT
from penstock.ingest.rejected_lines import list_fuses
from penstock.ingest.tables import rejection_fuse
from penstock.lake.catalog import NO_PARTITION, announce_files, create_snapshot, withdraw_intents
from penstock.lake.upkeep.verification import verify
from penstock.shards.registered_shards import list_shards, marks_of
from penstock_jobs.importers.progress import imported_source
from penstock_jobs.rewards.tables import follow_up_label
from penstock_jobs.shards.recipe import Recipe
from tests.support.checkpoint_factory import add
from tests.support.engine_lake import built, fill
from tests.support.lakes import START_US, HandLake, hand_lake, make_event
from tests.support.marker_search import places_with
from tests.support.reward_runs import run_at, seen, worked

everywhere = pytest.mark.usefixtures("each_place")
UNTIL_US = START_US + 10**12
SESSION = ErasureScope("default", "session", "s03", UNTIL_US)


def erase(lake: HandLake, scope: ErasureScope = SESSION) -> dict[str, Any]:
    return carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))


@everywhere
def test_rewards_are_gone_also_as_of_a_snapshot(lake: HandLake) -> None:
    fill(lake)
    create_snapshot(lake.lake.database, "before")
    of_session = "select count(*) as n from rewards where session_id = 's03'"
    others = "select count(*) as n from rewards where session_id <> 's03'"
    [before] = lake.rows(others)
    assert lake.rows(of_session)[0]["n"] > 0
    erase(lake)
    for as_of in (None, "before"):
        assert lake.rows(of_session, as_of=as_of) == [{"n": 0}]
        assert lake.rows(others, as_of=as_of) == [before]
    assert lake.rows("select count(*) as n from outcomes where session_id = 's03'")[0]["n"] == 0
    assert verify(lake.lake).findings == []
    assert places_with(lake.lake, "s03") == []


def test_a_session_of_another_tenant_with_the_same_name_stays(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as hand:
        fill(hand)
        hand.store([*worked("s03"), seen("s03", 303)], "other")
        run_at(hand, 86_500)
        erase(hand)
        [left] = hand.rows("select count(*) as n from outcomes", tenant="other")
        assert left["n"] == 1


@everywhere
def test_a_shard_that_held_it_is_gone_and_names_the_checkpoints_that_learned_it(
    lake: HandLake, recipe: Recipe
) -> None:
    fill(lake)
    shard = built(lake, recipe).manifest.id
    add(lake.lake.database, "ckpt-7", shards=[shard])
    report = erase(lake)
    assert report["seen_by"] == {"shards": [shard], "checkpoints": ["ckpt-7"]}
    left = [stored.name for stored in lake.lake.store.list("shards")]
    assert not [name for name in left if name.endswith(".parquet")]
    [(marked, reason)] = marks_of(lake.lake.database, TENANT_DEFAULT, shard)
    assert reason == "erased"
    assert "s03" not in marked
    # Built again, it is a shard without the session.
    again = built(lake, recipe).manifest
    assert again.id != shard
    assert again.counts.sessions == 11
    assert [each.id for each in list_shards(lake.lake.database, "default")] == [shard, again.id]
    # And another erasure does not stumble over the first.
    assert erase(lake, ErasureScope("default", "session", "s04", UNTIL_US))["seen_by"] == {
        "shards": [again.id],
        "checkpoints": [],
    }


def name_in_another_session(lake: HandLake) -> ErasureScope:
    lake.store([make_event("s03", 6, user="u-77")])
    return ErasureScope("default", "user", "u-77", UNTIL_US)


@pytest.mark.parametrize("before", [True, False], ids=["built before", "built after"])
def test_a_name_in_a_session_of_another_costs_only_what_was_made_of_it(
    lake: HandLake, recipe: Recipe, before: bool
) -> None:
    fill(lake)
    lake.clock.advance(10**8 if before else 1)  # a shard is made by the database's clock
    scope = None if before else name_in_another_session(lake)
    shard = built(lake, recipe).manifest.id
    report = erase(lake, scope or name_in_another_session(lake))
    assert (report["sessions"], report["sessions_in_part"]) == (0, 1)
    assert report["removed"]["events"] == 1
    assert report["seen_by"].get("shards", []) == ([] if before else [shard])
    of_session = "select count(*) as n from rewards where session_id = 's03'"
    assert lake.rows(of_session) == [{"n": 0}]
    run_at(lake, 86_500)
    assert lake.rows(of_session)[0]["n"] > 0


def test_a_shard_whose_files_are_damaged_goes_too(lake: HandLake, recipe: Recipe) -> None:
    fill(lake)
    shard = built(lake, recipe).manifest.id
    store = lake.lake.store
    [rows] = [each.name for each in store.list("shards") if each.name.endswith(".parquet")]
    store.delete(rows)
    with store.create(rows) as file:
        file.write(b"no Parquet any more")
    assert erase(lake)["seen_by"]["shards"] == [shard]
    assert not [each for each in store.list("shards") if each.name.endswith(".parquet")]


def test_labels_and_what_imports_remember_are_gone(lake: HandLake) -> None:
    fill(lake)
    label: dict[str, Any] = {"tenant": "default", "turn": 1, "message": "0" * 64}
    label |= {"label": "content"} | {
        "drawn": True,
        "again": False,
        "until_us": 1,
        "by": "somebody",
        "is_model": False,
        "at": 1,
    }
    source: dict[str, Any] = {"tenant": "default", "digest": "0" * 32, "path": "/home/u-77"}
    source |= {"format": "codex", "mark": "1", "imported_at": 1}
    with lake.lake.database.write() as connection:
        connection.execute(sa.insert(imported_source).values(**source))
        for session in ("s03", "s04"):
            connection.execute(sa.insert(follow_up_label).values(**label, session_id=session))
    erase(lake)
    with lake.lake.database.read() as connection:
        labelled = connection.scalars(sa.select(follow_up_label.c.session_id)).all()
        sources = connection.execute(sa.select(imported_source)).all()
    assert labelled == ["s04"]
    assert sources == []


@everywhere
@pytest.mark.parametrize("kind", ["session", "tenant"])
def test_what_was_left_beside_it_is_gone(tmp_path: Path, kind: str) -> None:
    """Each place has a marker planted in it."""
    marker = "planted-marker-5c1e"
    with hand_lake(tmp_path) as hand:
        fill(hand)
        lake = hand.lake
        own = ("t-default/staging/x/0", "t-default/7f3a")
        unfinished = [f"shards/{folder}/part-00000.parquet" for folder in own]
        not_mine = "shards/t-other/staging/z/0/part-00000.parquet"
        for name in (*unfinished, not_mine):
            announce_files(lake.database, [name], NO_PARTITION, owner="a killed build")
            with lake.store.create(name) as file:
                file.write(b"of another" if name == not_mine else marker.encode())
        for folder in ("cache/shards", "tmp/0123456789abcdef"):
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "copy.parquet").write_text(marker)
        fuse: dict[str, Any] = {"tenant": "default", "source": "by-hand", "tripped_at": 1}
        fuse |= {"rejected": 1, "seen": 1, "reason": f"no event: {marker}"}
        others = fuse | {"tenant": "other", "reason": "no event"}
        with lake.database.write() as connection:
            connection.execute(sa.insert(rejection_fuse), [fuse, others])
        assert len(places_with(lake, marker)) >= 4
        value = "s03" if kind == "session" else "default"
        erase(hand, ErasureScope("default", kind, value, UNTIL_US))
        assert places_with(lake, marker) == []
        reasons = {each.tenant: each.reason for each in list_fuses(lake.database)}
        assert reasons == {"other": "no event"} | (
            {"default": "erased"} if kind == "session" else {}
        )
        # The build that wrote them cannot register its shard.
        with lake.database.write() as connection:
            assert not withdraw_intents(connection, unfinished)
            assert withdraw_intents(connection, [not_mine])
        lake.store.delete(not_mine)
        assert verify(lake).findings == []
