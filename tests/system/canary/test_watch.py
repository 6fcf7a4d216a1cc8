"""The watcher over real lakes: what it takes back, what it leaves, and whom it never fights."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from penstock.registry.channels.change import ChannelPinned
from penstock.registry.channels.history import channel_changes
from penstock.registry.gate.tables import live_look
from penstock.registry.gate.verdict import GateRefused, Outcome
from penstock_jobs.loop.canary import watch as watcher
from penstock_jobs.loop.canary.look import Look, newest_look, situation_of, take_look
from penstock_jobs.loop.canary.watch import WatchRound, lease_of, step_once, watch_once
from tests.support.canary_traffic import (
    CHANNEL,
    HOUR,
    MINUTE,
    NEW,
    OLD,
    PLEASED,
    POLICY,
    REQUIRE,
    STEPS,
    Behaviour,
    Plan,
    begin_canary,
    begin_watch,
    reward,
    sessions,
    state,
    store,
)
from tests.support.channels.channels_seen import changed_us
from tests.support.checkpoint_factory import TENANT, promote, release, rollback, says
from tests.support.lakes import HandLake, hand_lake

WORSE = {NEW: Behaviour(pleased=0.2)}
AUTO = POLICY + "auto_step = true\n"


@pytest.fixture
def either_lake(tmp_path: Path, each_database: None) -> Iterator[HandLake]:
    """Its metadata are in each kind of database."""
    with hand_lake(tmp_path) as lake:
        yield lake


def gate_says(outcome: Outcome) -> AbstractContextManager[object]:
    return patch.object(watcher, "gate_judge", lambda *_question: says(outcome))


def once(
    lake: HandLake, at_us: int, gate: Outcome = "PASS", meanwhile: Callable[[], None] = lambda: None
) -> WatchRound:
    """Run a round; `meanwhile` comes between its look and what it does."""

    def look(*facts: Any) -> Look:
        found = take_look(*facts)
        meanwhile()
        return found

    with gate_says(gate), patch.object(watcher, "take_look", look):
        return watch_once(lake.lake, TENANT, CHANNEL, at_us)


def looks(lake: HandLake) -> int:
    with lake.lake.database.read() as connection:
        return int(
            connection.execute(sa.select(sa.func.count()).select_from(live_look)).scalar_one()
        )


def test_a_worse_canary_is_rolled_back_with_the_reason_and_stays_so(either_lake: HandLake) -> None:
    lake = either_lake
    began = begin_canary(lake, AUTO)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, behaviours=WORSE)))
    reward(lake, began + 4 * HOUR)
    found = once(lake, began + 4 * HOUR)
    assert found.action == "rolled_back"
    assert found.look is not None
    assert {one.metric: one.outcome for one in found.look.metrics} == {
        "explicit_feedback": "breach", "latency_ms": "pass",
    }  # fmt: skip
    now = state(lake)
    assert (now.checkpoint, now.canary, now.pinned) == (OLD, None, True)
    change = channel_changes(lake.lake.database, TENANT, CHANNEL)[-1]
    assert (change.action, change.actor) == ("rollback", "watcher")
    assert "explicit_feedback: breach, worse by more than the margin" in change.reason
    # What runs by itself, and the watcher too, leaves it there.
    assert once(lake, began + 5 * HOUR).action == "nothing"
    with pytest.raises(ChannelPinned):
        promote(lake.lake.database, NEW, share=0.5)
    # A person releases it, and what the first canary showed does not count against the second.
    release(lake.lake.database)
    promote(lake.lake.database, NEW, share=0.5)
    trial = situation_of(lake.lake, TENANT, CHANNEL).trial
    assert trial is not None
    assert newest_look(lake.lake.database, trial) is None


def test_a_canary_takes_a_step_by_its_age_and_through_the_gate(either_lake: HandLake) -> None:
    lake = either_lake
    began = begin_canary(lake, AUTO, share=0.2)
    plan = Plan(from_us=began + 2 * MINUTE, users=400, share=0.2, span_us=HOUR)
    store(lake, sessions(plan))
    reward(lake, began + 2 * HOUR)
    early = once(lake, began + 20 * MINUTE)
    assert (early.action, state(lake).canary_share) == ("looked", 0.2)
    assert "demands 30 min" in early.why
    refused = once(lake, began + 2 * HOUR, gate="INCONCLUSIVE")
    assert (refused.action, state(lake).canary_share) == ("refused", 0.2)
    raised = once(lake, began + 2 * HOUR)
    assert (raised.action, state(lake).canary_share) == ("raised", 0.5)
    last = channel_changes(lake.lake.database, TENANT, CHANNEL)[-1]
    assert (last.action, last.actor) == ("canary", "watcher")
    assert once(lake, changed_us(state(lake)) + 10 * MINUTE).action == "looked", "too early again"


def test_an_equal_canary_passes_and_after_its_last_step_gets_all(lake: HandLake) -> None:
    began = begin_canary(lake, AUTO)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE)))
    reward(lake, began + 2 * HOUR)
    found = once(lake, began + 2 * HOUR)
    assert found.look is not None
    assert (found.look.outcome, found.action) == ("pass", "promoted")
    assert (state(lake).checkpoint, state(lake).canary) == (NEW, None)
    last = channel_changes(lake.lake.database, TENANT, CHANNEL)[-1]
    assert (last.action, last.actor) == ("promote", "watcher")


def test_without_auto_step_only_a_person_steps(lake: HandLake) -> None:
    began = begin_canary(lake, share=0.2)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, users=400, share=0.2)))
    reward(lake, began + 2 * HOUR)
    assert once(lake, began + 2 * HOUR).action == "looked"
    assert state(lake).canary_share == 0.2

    def step(outcome: Outcome) -> WatchRound:
        with gate_says(outcome):
            at_us = began + 2 * HOUR
            return step_once(lake.lake, TENANT, CHANNEL, actor="ann", at_us=at_us)

    with pytest.raises(GateRefused):
        step("FAIL")
    assert (step("PASS").action, state(lake).canary_share) == ("raised", 0.5)


def test_low_traffic_and_none_decide_nothing_and_take_no_step(lake: HandLake) -> None:
    began = begin_canary(lake, AUTO)
    reward(lake, began)
    nothing = once(lake, began + 4 * HOUR)
    assert nothing.look is not None
    assert (nothing.look.outcome, nothing.action) == ("undecided", "looked")
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, users=40, behaviours=WORSE)))
    reward(lake, began + 4 * HOUR)
    few = once(lake, began + 4 * HOUR)
    assert few.look is not None
    assert (few.look.outcome, few.action) == ("undecided", "looked")
    assert "each needs 30" in few.why
    assert state(lake).canary == NEW


def test_pending_rewards_are_counted_and_waited_for(lake: HandLake) -> None:
    began = begin_canary(lake)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, behaviours=WORSE)))
    # The definition is known, and has not computed these sessions.
    reward(lake, began)
    waiting = once(lake, began + 2 * HOUR)
    assert waiting.look is not None
    [pleased] = [one for one in waiting.look.metrics if one.metric == "explicit_feedback"]
    assert pleased.pending is not None
    assert pleased.pending["canary"] == waiting.look.sessions["canary"] > 150
    assert (pleased.outcome, waiting.action) == ("undecided", "looked")
    assert " pending" in pleased.why
    reward(lake, began + 3 * HOUR)
    assert once(lake, began + 3 * HOUR).action == "rolled_back"


def test_a_metric_that_cannot_be_computed_is_an_error_and_no_step(lake: HandLake) -> None:
    policy = REQUIRE + PLEASED.replace('"live"', '"never"') + STEPS + "auto_step = true\n"
    began = begin_canary(lake, policy)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE)))
    found = once(lake, began + 2 * HOUR)
    assert found.look is not None
    assert (found.look.outcome, found.action, state(lake).canary) == ("error", "looked", NEW)
    assert "it has not run" in found.look.metrics[0].why
    assert found.look.metrics[0].difference is None, "an error is no 0"


def test_a_broken_sample_ratio_holds_the_canary_where_it_is(lake: HandLake) -> None:
    began = begin_canary(lake, AUTO)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, kept=0.4)))
    reward(lake, began + 2 * HOUR)
    found = once(lake, began + 2 * HOUR)
    assert found.look is not None
    assert found.look.sample_ratio is not None
    assert found.look.sample_ratio.outcome == "mismatch"
    assert (found.look.outcome, found.action) == ("error", "looked")
    assert "sample ratio mismatch" in found.why
    assert (state(lake).canary, state(lake).pinned) == (NEW, False)


def test_what_a_person_does_meanwhile_stands(either_lake: HandLake) -> None:
    lake = either_lake
    began = begin_canary(lake)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, behaviours=WORSE)))
    reward(lake, began + 2 * HOUR)
    acted: list[int] = []

    def person() -> None:
        if not acted:
            acted.append(rollback(lake.lake.database, reason="I saw it first").version)

    found = once(lake, began + 2 * HOUR, meanwhile=person)
    assert found.action == "nothing", "it started over, and there was no canary any more"
    last = channel_changes(lake.lake.database, TENANT, CHANNEL)[-1]
    assert (last.version, last.actor, last.reason) == (acted[0], "bob", "I saw it first")


def test_a_breach_that_a_killed_watcher_saw_is_acted_on_by_the_next(either_lake: HandLake) -> None:
    lake = either_lake
    began = begin_canary(lake)
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE, behaviours=WORSE)))
    reward(lake, began + 2 * HOUR)

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        once(lake, began + 2 * HOUR, meanwhile=kill)
    assert (state(lake).canary, looks(lake)) == (NEW, 1)
    # Though what would be seen now would not be enough.
    assert once(lake, began + 3 * MINUTE).action == "rolled_back"
    assert (state(lake).canary, looks(lake)) == (None, 1)


def test_what_was_promoted_is_watched_beside_the_one_before(lake: HandLake) -> None:
    began = begin_watch(lake)
    before = Plan(from_us=began - 2 * HOUR, users=200, share=1e-9, prefix="before")
    after = Plan(
        from_us=began + 2 * MINUTE, users=200, share=1 - 1e-9, prefix="after", behaviours=WORSE
    )
    store(lake, [*sessions(before), *sessions(after)])
    reward(lake, began + 2 * HOUR)
    assert once(lake, began + 7 * HOUR).action == "nothing", "the watch is over"
    found = once(lake, began + 2 * HOUR)
    assert found.trial is not None
    assert (found.trial.kind, found.action) == ("watch", "rolled_back")
    now = state(lake)
    assert (now.checkpoint, now.pinned) == (OLD, True)


def test_tenants_do_not_see_each_other(lake: HandLake) -> None:
    began = begin_canary(lake)
    lake.store(list(sessions(Plan(from_us=began + 2 * MINUTE, behaviours=WORSE))), "another")
    reward(lake, began + 2 * HOUR)
    found = once(lake, began + 2 * HOUR)
    assert found.look is not None
    assert found.look.sessions == {"canary": 0, "current": 0}


def test_one_watcher_looks_at_a_time(either_lake: HandLake) -> None:
    lake = either_lake
    from penstock.backends.database.leases import leased

    begin_canary(lake)
    told: list[WatchRound] = []
    with leased(lake.lake.database, lease_of(TENANT, CHANNEL), "another", 60) as mine:
        assert mine
        watcher.watch(lake.lake, TENANT, CHANNEL, tell=told.append, wait=lambda _s: True)
    assert (told, looks(lake)) == ([], 0)
    rounds = iter([False, False, True])
    watcher.watch(lake.lake, TENANT, CHANNEL, tell=told.append, wait=lambda _s: next(rounds))
    assert [one.action for one in told] == ["looked"] * 3
    assert looks(lake) == 1, "of looks that say the same the last one stays"
