"""A cycle from sessions to promotion, and every way in which it may end otherwise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import clock_us, now_us
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import ChannelUnknown
from penstock.registry.channels.channel import channel_state
from penstock.registry.checkpoints import attempts
from penstock.registry.checkpoints.registration import find
from penstock.registry.checkpoints.tables import benchmark_attempt
from penstock_jobs.loop.cycles import Cycle, cycles_of
from penstock_jobs.loop.tables import loop_cycle
from tests.support.checkpoint_factory import promote
from tests.support.loop_world import (
    AGENT,
    CHANNEL,
    POLICY,
    RECIPE,
    TENANT,
    TRAINER,
    World,
    open_world,
    outcomes,
)
from tests.support.repository import ROOT

TOKENIZER = ROOT / "examples" / "recipes" / "tokenizer.json"


def serving(world: World) -> str | None:
    return channel_state(world.database, TENANT, CHANNEL).checkpoint


def stage(cycle: Cycle, name: str) -> Any:
    return cycle.stage(name)


@pytest.mark.long
def test_a_cycle_that_passes_is_promoted_and_the_next_waits_for_its_sessions(world: World) -> None:
    told: list[str] = []
    done = world.run_once(tell=told.append)
    assert (done.outcome, done.why) == ("promoted", ""), told
    assert (done.parent, done.checkpoint) == ("first", "mini-0001")
    assert set(outcomes(done).values()) == {"done"}
    assert {one.epoch for one in done.stages} == {1}
    assert all(one.inputs_digest for one in done.stages)
    assert serving(world) == "mini-0001"
    made = find(world.database, TENANT, "mini-0001")
    assert (made.parent, made.checked, len(made.shards)) == ("first", "verified", 1)

    waits = world.run_once(tell=told.append)
    assert (waits.number, waits.ended_at) == (2, None)
    assert stage(waits, "rewards").why == ("0 of 400 fresh scored tokens from mini-0001")
    world.talk("first", first=20)  # samples of a retired checkpoint begin nothing
    assert world.run_once().ended_at is None
    world.talk("mini-0001", first=40, count=4)
    second = world.run_once()
    assert (second.number, second.outcome, second.parent) == (2, "promoted", "mini-0001")
    assert stage(second, "rewards").result["tokens"] == 400
    shard = stage(second, "shard").result
    assert shard["samples"] == 4
    assert shard["excluded"] == {"stale_version": 12}


def test_a_cycle_that_fails_its_gate_leaves_production_alone_and_says_why(world: World) -> None:
    world.write("agent.sh", 'test "$PENSTOCK_CHECKPOINT" = first && echo 42 > answer; true\n')
    done = world.run_once()
    assert done.outcome == "refused"
    assert "the verdict on mini-0001 is FAIL: " in done.why
    assert serving(world) == "first"
    assert outcomes(done)["gate"] == "over"
    assert outcomes(done)["promote"] == "waiting"
    assert stage(done, "gate").result["document"]["requirements"]
    # What was scored before is not fresh any more.
    assert "0 of 400" in stage(world.run_once(), "rewards").why


def test_a_trainer_that_fails_is_tried_again_and_given_up(world: World) -> None:
    world.write("trainer.sh", "echo no memory; exit 7\n")
    done = world.run_once()
    assert done.outcome == "failed"
    assert "train: The trainer made no checkpoint: it ended with status 7" in done.why
    assert "no memory" in done.why
    assert (stage(done, "train").failures, stage(done, "train").epoch) == (2, 2)
    assert serving(world) == "first"
    # Nothing was made of its sessions: the next cycle begins with them.
    again = world.run_once()
    assert (again.number, again.outcome) == (2, "failed")
    assert stage(again, "rewards").result["tokens"] == stage(done, "rewards").result["tokens"]


def test_files_without_the_digest_that_the_trainer_says_are_not_registered(world: World) -> None:
    trainer = (world.folder / "trainer.sh").read_text()
    world.write("trainer.sh", trainer + 'echo more >> "$PENSTOCK_OUTPUT/weights"\n')
    done = world.run_once()
    assert done.outcome == "failed"
    assert done.why.startswith("register: The files at file://")
    assert stage(done, "register").failures == 1  # to try again would change nothing


def test_a_channel_that_cannot_have_a_loop_is_named(world: World) -> None:
    world.loop(('channel = "production"', 'channel = "prodction"\n'))
    world.write("recipe.toml", RECIPE.replace("production", "prodction"))
    with pytest.raises(ChannelUnknown, match="prodction"):
        world.run_once()
    promote(world.database, "first", channel="prodction")
    world.loop(
        ('channel = "production"', 'channel = "prodction"\n'), ('policy = "policy.toml"', "")
    )
    with pytest.raises(InvalidInput, match="no gate policy"):
        world.run_once()


def test_inputs_that_a_person_repaired_have_all_their_tries(world: World) -> None:
    world.loop(("tries = 2", "tries = 3"))
    world.write("trainer.sh", "exit 1\n")
    failures: list[int] = []

    def repair(point: str) -> None:
        if point == "train:kept":
            [cycle] = cycles_of(world.database, TENANT)
            failures.append(stage(cycle, "train").failures)
            if len(failures) == 2:
                world.write("other.sh", "exit 2\n")
                world.loop(("sh trainer.sh", "sh other.sh"), ("tries = 2", "tries = 3"))
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run_once(crash_point=repair)
    assert world.run_once(crash_point=repair).outcome == "failed"
    assert failures == [1, 2, 1, 2, 3]


def test_cycle_after_cycle_until_it_is_enough(world: World) -> None:
    told: list[str] = []

    def wait(_seconds: float) -> bool:
        if serving(world) == "mini-0001":
            world.talk("mini-0001", first=40, count=4)
            return False
        return serving(world) == "mini-0002"

    world.runner(wait=wait, tell=told.append).run()
    found = [(one.number, one.outcome) for one in cycles_of(world.database, TENANT)]
    assert found == [(3, None), (2, "promoted"), (1, "promoted")]
    waits = [one for one in told if "waits" in one]
    assert len(waits) == 2  # each reason once, however often it is looked at


def test_evidence_that_cannot_be_judged_is_no_verdict_on_the_checkpoint(world: World) -> None:
    broken = 'case "$PENSTOCK_CHECKPOINT-$PENSTOCK_TASK" in mini-*-task-[0-3]) exit 75 ;; esac\n'
    world.write("agent.sh", f"{broken}echo 42 > answer\n")
    done = world.run_once()
    assert (done.outcome, outcomes(done)["gate"]) == ("failed", "over")
    assert "the verdict on mini-0001 is ERROR" in done.why
    assert serving(world) == "first"


def test_results_of_the_parent_that_are_too_old_are_joined_by_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        ago_us = 2 * 3_600 * 1_000_000
        earlier.setattr(attempts, "clock_us", lambda connection: clock_us(connection) - ago_us)
        assert world.run_once().outcome == "promoted"
    world.write("policy.toml", POLICY + '[evidence]\nmax_age = "1h"\n')
    table = benchmark_attempt
    world.talk("mini-0001", first=40, count=4)
    second = world.run_once()
    assert (second.outcome, second.why) == ("promoted", "")
    assert stage(second, "gate").result["document"]["suites"]["mini"]["incumbent"]["stale"] == 10
    columns = (table.c.checkpoint, table.c.attempt)
    with world.database.read() as connection:
        found = connection.execute(
            sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
        )
        assert [tuple(one) for one in found] == [
            ("first", 0, 10), ("mini-0001", 0, 10), ("mini-0001", 1, 10), ("mini-0002", 0, 10),
        ]  # fmt: skip


def test_attempts_come_until_it_is_decided_also_when_it_is_done_again(world: World) -> None:
    world.loop(("attempts = 1", "attempts = 2\nuntil_decided = true"))

    def interrupt(point: str) -> None:
        if point == "bench:worked":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run_once(crash_point=interrupt)
    first = attempted(world)
    done = world.run_once()
    assert (done.outcome, stage(done, "bench").epoch) == ("promoted", 2)
    assert attempted(world) == first
    assert first["first"] == 20
    document = stage(done, "gate").result["document"]
    assert document["suites"]["mini"]["design"] is not None
    assert any("until it is decided" in one for one in document["notes"])


def attempted(world: World) -> dict[str, int]:
    columns = benchmark_attempt.c.checkpoint
    query = sa.select(columns, sa.func.count()).group_by(columns)
    with world.database.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('command = "sh trainer.sh"', 'url = "http://127.0.0.1:9/"\ntoken_env = "NONE"'), "NONE"),
        (("attempts = 1", 'attempts = 1\npass_env = ["NOBODY"]'), "NOBODY"),
    ],
)
def test_what_the_environment_lacks_is_said_before_anything_runs(
    world: World, change: tuple[str, str], named: str
) -> None:
    world.loop(change)
    with pytest.raises(InvalidInput, match=f"_env {named}"):
        world.run_once()


ANY = '[gate]\ncombine = "any"\n'


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("recipe.toml", '["mini"]', '["mini", "others"]', "The suite 'others'"),
        (
            "recipe.toml",
            "[tokens]",
            '[tokens]\ntokenizer = "no.json"',
            "no.json cannot be used: No such",
        ),
        ("recipe.toml", "[tokens]", '[tokens]\ntokenizer = "all.sql"', "The tokenizer .*all.sql"),
        (
            "recipe.toml",
            "[tokens]",
            f'[tokens]\ntokenizer = "{TOKENIZER}"\ntemplate = "no.jinja"',
            "no.jinja cannot be used: No such",
        ),
        ("policy.toml", '"mini"', '"others"', "requires others, which no .*bench"),
        (
            "policy.toml",
            '[[require]]\nsuite = "mini"',
            f'{ANY}[[require]]\nsuite = "others"',
            "nothing on mini",
        ),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    world: World, file: str, old: str, new: str, why: str
) -> None:
    world.loop(("attempts = 1", "attempts = 2\nuntil_decided = true"))
    text = (world.folder / file).read_text()
    assert old in text
    world.write(file, text.replace(old, new))
    with pytest.raises(InvalidInput, match=why):
        world.run_once()
    assert cycles_of(world.database, TENANT) == []


def test_attempts_on_other_machines_cannot_meet_a_server_of_this_one(tmp_path: Path) -> None:
    with open_world(tmp_path, executor="ray:auto") as world:
        world.loop(more='[serving]\ncommand = "serve {port}"\n')
        with pytest.raises(InvalidInput, match="cannot reach it"):
            world.run_once()


BUDGET = ('channel = "production"', 'channel = "production"\nbudget = "1h"\nover_budget = "end"')


def leaving(world: World, seconds: int, point: str) -> Callable[[str], None]:
    """At a point of the cycle so much of an hour is left."""

    def leave(reached: str) -> None:
        if reached == point:
            with world.database.write() as connection:
                began = now_us() - (3_600 - seconds) * 1_000_000
                connection.execute(sa.update(loop_cycle).values(began_at=began))

    return leave


def test_a_trainer_that_takes_all_of_the_budget_ends_the_cycle(world: World) -> None:
    world.write("trainer.sh", "sleep 300\n")
    world.loop(BUDGET)
    done = world.run_once(crash_point=leaving(world, 2, "shard:kept"))
    assert done.outcome == "over_budget"
    assert done.why.startswith("its budget of 3,600 s was used up in train: ")
    assert "the `budget` of the loop file, and was stopped" in done.why
    assert (serving(world), done.checkpoint) == ("first", None)
    # It is no failure: the next cycle begins at once.
    world.write("trainer.sh", TRAINER)
    again = world.run_once()
    assert (again.number, again.outcome) == (2, "promoted")


def test_attempts_end_with_the_budget_and_count_later(tmp_path: Path) -> None:
    with open_world(tmp_path, lease_seconds=1, flush_seconds_max=0.5) as world:
        world.write("agent.sh", f"sleep 1\n{AGENT}")
        world.loop(BUDGET)
        told: list[str] = []
        done = world.run_once(tell=told.append, crash_point=leaving(world, 3, "register:kept"))
        assert (done.outcome, done.why) == (
            "over_budget",
            "its budget of 3,600 s was used up in bench",
        )
        assert "cycle 1: bench ends, the budget is used up" in told
        assert 0 < sum(attempted(world).values()) < 20
        assert stage(done, "bench").state == "waiting"
