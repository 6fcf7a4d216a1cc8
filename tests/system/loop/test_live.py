"""A canary and a watch at the end of a cycle. How a canary gets all traffic is in test_kills."""

import pytest

from penstock.core.errors import InvalidInput
from penstock.registry.channels.channel import channel_state, choose_arm
from penstock.registry.channels.history import channel_changes
from penstock.registry.channels.promotion import Rollback, roll_back
from tests.support.canary_traffic import HOUR, session
from tests.support.channels.channels_seen import changed_us
from tests.support.lakes import Event
from tests.support.loop_world import CHANNEL, POLICY, TENANT, World, outcomes


def state(world: World) -> tuple[str | None, str | None, bool]:
    found = channel_state(world.database, TENANT, CHANNEL)
    return found.checkpoint, found.canary, found.pinned


def take_back(world: World) -> None:
    wanted = Rollback(tenant=TENANT, channel=CHANNEL, reason="users complain", actor="ann")
    roll_back(world.database, wanted)


def test_a_canary_that_is_not_decided_in_time_is_taken_back(world: World) -> None:
    world.loop(more='[canary]\nlimit = "0s"\n')
    done = world.run_once()
    assert done.outcome == "rolled_back"
    assert "rollback by loop-mini: no decision on the canary mini-0001 in time" in done.why
    assert "old; the policy demands 30 min" in done.why
    assert state(world) == ("first", None, True)
    changes = channel_changes(world.database, TENANT, CHANNEL)
    assert [one.canary_share for one in changes if one.action == "canary"] == [0.05]


def test_a_canary_that_a_person_takes_back_ends_the_cycle(world: World) -> None:
    world.loop(more="[canary]\nshare = 0.5\n")

    def wait(_seconds: float) -> bool:
        if state(world)[1] is not None:
            take_back(world)
        return False

    done = world.run_once(wait=wait)
    assert (done.outcome, done.why) == ("rolled_back", "rollback by ann: users complain")
    assert state(world) == ("first", None, True)


def test_a_watch_ends_when_its_time_is_over(world: World) -> None:
    world.loop(more='[watch]\nfor = "0s"\n')
    done = world.run_once()
    assert (done.outcome, outcomes(done)["watch"]) == ("promoted", "done")
    assert state(world) == ("mini-0001", None, False)


LIVE = f"""{POLICY}
[[live]]
metric = "latency_ms"
margin = 0.2
[canary]
steps = [0.5]
min_age = "1h"
"""


def users(at_us: int, bad: str | None, *, canary: str | None, checkpoint: str) -> list[Event]:
    """So many that a difference is sure. Those of one checkpoint wait five times as long, and
    none of them is content."""
    found: list[Event] = []
    for number in range(300):
        user = f"user-{at_us}-{number}"
        served = checkpoint
        if canary is not None:
            arm = choose_arm(CHANNEL, user, current=checkpoint, canary=canary, share=0.5)
            assert arm.checkpoint is not None
            served = arm.checkpoint
        found += session(
            f"of-{user}",
            at_us + number,
            step_us=1,
            checkpoint=served,
            user=user,
            pleased=served != bad and number % 10 > 0,
            latency_ms=(5 if served == bad else 1) * (900.0 + number % 100),
        )
    return found


@pytest.mark.parametrize("metric", ["latency_ms", "explicit_feedback"])
def test_a_canary_that_live_metrics_show_to_be_worse_ends_the_cycle(
    world: World, metric: str
) -> None:
    """Nobody else computes the rewards that a metric needs."""
    world.write("policy.toml", LIVE.replace("latency_ms", metric))
    world.loop(more='[canary]\nshare = 0.5\n[watch]\nfor = "1h"\n')
    told: list[str] = []

    def wait(_seconds: float) -> bool:
        assert len(told) < 40, [one for one in told if "waits" in one]
        now = channel_state(world.database, TENANT, CHANNEL)
        if now.canary is not None:
            at_us = changed_us(now) + 1
            world.hand.store(users(at_us, now.canary, canary=now.canary, checkpoint="first"))
        return False

    done = world.run_once(wait=wait, tell=told.append)
    assert done.outcome == "rolled_back"
    assert done.why.startswith("rollback by watcher: live metrics of the canary mini-0001 against")
    assert f"{metric}: breach" in done.why
    assert (outcomes(done)["canary"], outcomes(done)["watch"]) == ("over", "waiting")
    assert state(world) == ("first", None, True)


def test_what_live_metrics_show_to_be_worse_while_it_is_watched_is_taken_back(world: World) -> None:
    """As a canary it was as quick as the one before."""
    world.write("policy.toml", LIVE.replace('"1h"', '"0s"'))
    world.loop(more='[canary]\nshare = 0.5\n[watch]\nfor = "1h"\n')
    seen: list[str] = []
    told: list[str] = []

    def wait(_seconds: float) -> bool:
        assert len(told) < 40, [one for one in told if "waits" in one]
        now = channel_state(world.database, TENANT, CHANNEL)
        at_us = changed_us(now) + 1
        if now.canary is not None and "canary" not in seen:
            seen.append("canary")
            world.hand.store(users(at_us, None, canary=now.canary, checkpoint="first"))
        if now.checkpoint == "mini-0001" and "watch" not in seen:
            seen.append("watch")
            before = users(at_us - HOUR, None, canary=None, checkpoint="first")
            after = users(at_us, "mini-0001", canary=None, checkpoint="mini-0001")
            world.hand.store([*before, *after])
        return False

    done = world.run_once(wait=wait, tell=told.append)
    assert (done.outcome, seen) == ("rolled_back", ["canary", "watch"])
    assert done.why.startswith("rollback by watcher: live metrics mini-0001 against first")
    assert (outcomes(done)["canary"], outcomes(done)["watch"]) == ("done", "over")
    assert state(world) == ("first", None, True)
    # Nothing begins before a person has looked at it.
    assert world.run_once(tell=told.append).ended_at is None
    assert "pinned; a person" in told[-1]


def test_live_metrics_without_a_canary_are_said_before_anything_runs(world: World) -> None:
    world.write("policy.toml", LIVE)
    with pytest.raises(InvalidInput, match=r"need a \[canary\] in the loop file"):
        world.run_once()
    assert channel_state(world.database, TENANT, CHANNEL).canary is None
