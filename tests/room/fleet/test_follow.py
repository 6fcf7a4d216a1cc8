"""A sidecar loads what its channel points at, and nothing else, whatever happens meanwhile."""

import json
from pathlib import Path

from penstock.registry.fleet.engine import MEMORY_NAME, LoadFailed
from penstock.registry.fleet.replicas import ReplicaAnswer
from penstock.registry.fleet.replicas import fleet as fleet_of
from tests.support.checkpoint_factory import TENANT, release, rollback, set_policy
from tests.support.fleet.following import JOURNAL, Fleet, add_large
from tests.support.waiting import eventually

#: Takes its time with `two`.
HELD = 'while test "$PENSTOCK_CHECKPOINT" = two -a ! -e {}; do sleep 0.02; done'


def replicas_of(fleet: Fleet) -> list[ReplicaAnswer]:
    return fleet_of(fleet.database, fleet.settings, TENANT, "production").replicas


def replica_of(fleet: Fleet) -> ReplicaAnswer:
    """The only one, once it was heard."""
    eventually(lambda: replicas_of(fleet))
    [found] = replicas_of(fleet)
    return found


def test_each_change_is_fetched_verified_and_loaded(fleet: Fleet) -> None:
    made = [fleet.add("one"), fleet.add("two")]
    fleet.promote("one")
    with fleet.following() as follower:
        follower.wait_for("loaded")
        fleet.promote("two")
        follower.wait_for("loaded", 2)
        rollback(fleet.database)
        loaded = follower.wait_for("loaded", 3)
        assert (loaded["checkpoint"], loaded["version"]) == ("one", 3)
        assert follower.journal() == ["one<", "two<one", "one<two"]
        assert follower.kinds().count("fetched") == 2  # the copy of the first was there still
        copies = [one for one in follower.directory.iterdir() if len(one.name) == 64]
        held = {(one / "config.json").read_text() for one in copies}
        assert held == {(one / "config.json").read_text() for one in made}
        eventually(lambda: replica_of(fleet).loaded == "one" and replica_of(fleet).version == 3)
    assert follower.result is True
    assert replicas_of(fleet) == []


def test_the_command_is_told_what_to_load(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("base")
    fleet.add("delta", form="delta", parent="base")
    fleet.promote("delta")
    told = f'env > {tmp_path}/told; cat "$PENSTOCK_FOLDER/config.json" > {tmp_path}/config'
    with fleet.following(told, replica="r-1") as follower:
        follower.wait_for("loaded")
    lines = (tmp_path / "told").read_text()
    facts = dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
    assert facts["PENSTOCK_CHECKPOINT"] == "delta"
    assert facts["PENSTOCK_FOLDER"] == str(follower.directory / facts["PENSTOCK_DIGEST"][7:])
    named = ("CHANNEL", "PART", "REPLICA", "VERSION", "FORM", "LOADED")
    found = [facts[f"PENSTOCK_{one}"] for one in named]
    assert found == ["production", "main", "r-1", "1", "delta", ""]
    assert json.loads((tmp_path / "config").read_text()) == {"name": "delta"}


#: What is loaded, what is applied for that, and how long the whole chain is.
CHAIN = """
applied=$(for one in $PENSTOCK_APPLY; do sed 's/.*: "//; s/"}//' $one/config.json; echo; done)
echo $PENSTOCK_CHECKPOINT $applied $(echo "$PENSTOCK_CHAIN" | wc -l) \
    | tr ' ' : >> "$PENSTOCK_FOLDER/../journal"
"""


def test_a_delta_is_applied_on_what_is_loaded(fleet: Fleet) -> None:
    fleet.add("base")
    fleet.add("first", form="delta", parent="base")
    fleet.add("second", form="delta", parent="first")
    fleet.promote("base")
    with fleet.following(CHAIN) as follower:
        follower.wait_for("loaded")
        fleet.promote("second")
        follower.wait_for("loaded", 2)
        rollback(fleet.database)
        follower.wait_for("loaded", 3)
    assert follower.journal() == ["base:base:1", "second:first:second:3", "base:base:1"]
    with fleet.following(CHAIN) as follower:  # what the engine has by now, nobody knows
        follower.wait_for("loaded")
        release(fleet.database)
        fleet.promote("first")
        follower.wait_for("loaded", 2)
    assert follower.journal()[3:] == ["base:base:1", "first:first:2"]
    with fleet.following(CHAIN) as follower:
        follower.wait_for("loaded")
    assert follower.journal()[5:] == ["first:base:first:2"]


def test_what_has_another_digest_is_never_loaded(fleet: Fleet) -> None:
    made = fleet.add("one")
    (made / "config.json").write_text("something else")
    fleet.promote("one")
    with fleet.following() as follower:
        problem = follower.wait_for("failed", 2)["problem"]
        assert "not the registered" in problem
        eventually(lambda: replica_of(fleet).problem == problem)
        assert follower.journal() == []
        assert not any(len(one.name) == 64 for one in follower.directory.iterdir())
        (made / "config.json").write_text('{"name": "one"}')
        follower.wait_for("loaded")
    assert follower.journal() == ["one<"]


def test_a_command_that_fails_is_tried_again(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.add("two")
    fleet.promote("one")
    fails = f"{JOURNAL}; echo out of memory; test -e {tmp_path}/mended"
    with fleet.following(fails) as follower:
        problem = follower.wait_for("failed", 3)["problem"]
        assert "ended with status 1" in problem
        assert problem.endswith("out of memory")
        pauses = [facts["again_in_s"] for kind, facts in follower.events if kind == "failed"][:3]
        assert pauses == [0.02, 0.04, 0.08]
        eventually(lambda: replica_of(fleet).problem == problem)
        assert replica_of(fleet).loaded is None
        (tmp_path / "mended").touch()
        follower.wait_for("loaded")
        eventually(lambda: replica_of(fleet).problem is None)
        (tmp_path / "mended").unlink()
        fleet.promote("two")
        eventually(lambda: "two<" in follower.journal())
        eventually(lambda: replica_of(fleet).state == "failed")
        assert replica_of(fleet).loaded is None  # nobody knows how far it came
    assert set(follower.journal()) == {"one<", "two<one", "two<"}


def test_a_rollback_while_a_checkpoint_is_loaded(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.add("two")
    fleet.promote("one")
    slow = f"{JOURNAL}; {HELD.format(tmp_path / 'go')}"
    with fleet.following(slow) as follower:
        follower.wait_for("loaded")
        fleet.promote("two")
        eventually(lambda: follower.journal() == ["one<", "two<one"])
        # It is told by a thread of its own, which may come after the command has begun.
        eventually(lambda: replica_of(fleet).state == "loading")
        assert [replica_of(fleet).state, replica_of(fleet).loaded] == ["loading", "one"]
        rollback(fleet.database)
        (tmp_path / "go").touch()
        assert follower.wait_for("loaded", 3)["checkpoint"] == "one"
    assert follower.journal() == ["one<", "two<one", "one<two"]


def test_what_is_wanted_no_more_is_not_fetched_to_its_end(fleet: Fleet) -> None:
    fleet.add("one")
    add_large(fleet)
    fleet.promote("one")
    with fleet.following() as follower:
        follower.wait_for("loaded")
        fleet.promote("large")
        eventually(
            lambda: any(one.name.startswith("fetching-") for one in follower.directory.iterdir())
        )
        rollback(fleet.database)
        follower.wait_for("superseded")
        eventually(lambda: replica_of(fleet).state == "loaded" and replica_of(fleet).version == 3)
    assert follower.journal() == ["one<"]


def test_an_engine_that_lost_it_gets_it_again(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.promote("one")
    engine = tmp_path / "engine"
    load = f'{JOURNAL}; echo "$PENSTOCK_CHECKPOINT" > {engine}'
    check = f'test "$(cat {engine})" = "$PENSTOCK_CHECKPOINT" || {{ echo restarted; exit 1; }}'
    with fleet.following(load, check=check) as follower:
        follower.wait_for("loaded")
        engine.write_text("what it was started with")
        assert follower.wait_for("lost")["text"].endswith("restarted")
        follower.wait_for("loaded", 2)
    assert follower.journal() == ["one<", "one<"]


def test_a_restarted_sidecar_loads_again_or_trusts_the_engine(fleet: Fleet) -> None:
    fleet.add("one")
    fleet.promote("one")
    for assume, runs in ((False, 1), (False, 2), (True, 2)):
        with fleet.following(assume_loaded=assume) as follower:
            follower.wait_for("loaded")
        assert len(follower.journal()) == runs
    state = json.loads((follower.directory / MEMORY_NAME).read_text())
    assert state["loaded"]["checkpoint"] == "one"
    (follower.directory / MEMORY_NAME).write_text("{")  # what cannot be read is nothing
    with fleet.following(assume_loaded=True) as follower:
        follower.wait_for("loaded")
    assert len(follower.journal()) == 3


def test_once(fleet: Fleet) -> None:
    set_policy(fleet.database)
    with fleet.following(once=True) as follower:
        eventually(lambda: follower.result is not None)
    assert follower.result is False
    fleet.add("one")
    fleet.promote("one")
    with fleet.following("echo no; exit 7", once=True) as follower:
        eventually(lambda: follower.error is not None)
    assert isinstance(follower.error, LoadFailed)
    assert (replica_of(fleet).state, replica_of(fleet).loaded) == ("failed", None)
    with fleet.following(once=True) as follower:
        eventually(lambda: follower.result is not None)
    assert follower.result is True
    assert follower.journal() == ["one<"]
    assert replica_of(fleet).loaded == "one"


def test_a_canary_s_part_follows_the_canary(fleet: Fleet) -> None:
    fleet.add("one")
    fleet.add("two")
    fleet.promote("one")
    with fleet.following() as main, fleet.following(replica="b", part="canary") as canary:
        for one in (main, canary):
            one.wait_for("loaded")
        fleet.promote("two", share=0.1)
        canary.wait_for("loaded", 2)
        rollback(fleet.database)
        canary.wait_for("loaded", 3)
        eventually(lambda: {one.version for one in replicas_of(fleet)} == {1})
    assert main.journal() == ["one<"]
    assert canary.journal() == ["one<", "two<one", "one<two"]


def test_a_replica_that_starts_after_a_change_of_policy_has_the_same_number(fleet: Fleet) -> None:
    fleet.add("one")
    fleet.promote("one")
    set_policy(fleet.database)
    with fleet.following('echo "$PENSTOCK_VERSION" >> "$PENSTOCK_FOLDER/../journal"') as late:
        late.wait_for("loaded")
    assert late.journal() == ["1"]


def test_a_fleet_says_that_it_is_mixed_and_whole_again(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.add("two")
    fleet.promote("one")
    held = HELD.format(tmp_path / "go")
    with (
        fleet.following() as first,
        fleet.following(replica="b") as second,
        fleet.following(held, replica="c") as slow,
    ):
        for one in (first, second, slow):
            one.wait_for("whole")
        fleet.promote("two")
        for one in (first, second, slow):
            assert set(one.wait_for("mixed")["loaded"]) == {"one", "two"}
        (tmp_path / "go").touch()
        for one in (first, second, slow):
            eventually(lambda one=one: one.kinds()[-1] == "whole")  # type: ignore[misc]
            assert one.wait_for("whole")["loaded"] == {"two": 3}


def test_reports_that_are_refused_keep_nothing_from_being_loaded(fleet: Fleet) -> None:
    fleet.add("one")
    fleet.promote("one")
    with fleet.following() as first:
        first.wait_for("loaded")
        eventually(lambda: replicas_of(fleet) != [])
        (first.directory / "other").mkdir()
        other = Fleet(fleet.database, first.directory / "other", fleet.settings)
        with other.following() as second:
            second.wait_for("loaded")
            assert (
                "Another sidecar already reports as the replica a"
                in second.wait_for("unreported")["text"]
            )
