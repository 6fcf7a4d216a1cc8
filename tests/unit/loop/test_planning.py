"""What comes next: pure, by tables."""

from dataclasses import replace

import pytest

from penstock.registry.channels.change import ChannelState
from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt
from penstock_jobs.benchmarks.run import PlannedAttempt
from penstock_jobs.loop.cycles import Cycle, CycleStage
from penstock_jobs.loop.loop_file import CycleStart, RetryPolicy
from penstock_jobs.loop.release import missing_attempts, oldest_accepted_us
from penstock_jobs.loop.runner import (
    STAGES,
    Action,
    EndCycle,
    OpenCycle,
    RunStage,
    Wait,
    next_action,
    pause_us,
)
from penstock_jobs.loop.stages import missing_for_start

NAMES = [stage.name for stage in STAGES]
NOW = 1_000_000_000
SECOND = 1_000_000
RETRY = RetryPolicy(tries=3, pause_s=10, longest_s=60)


def channel(**facts: object) -> ChannelState:
    """A channel with no more than these facts."""
    unknown = dict.fromkeys(ChannelState.__dataclass_fields__)
    known = {"channel": "production", "pinned": False}
    return ChannelState(**(unknown | known | facts))  # type: ignore[arg-type]


AT_FIRST = channel(checkpoint="first")


def row(**facts: object) -> Cycle:
    known = {"loop": "mini", "channel": "production", "budget_s": 1}
    return Cycle(**known, number=4, opened_at=0, **facts)  # type: ignore[arg-type]


def cycle(done: int, **facts: object) -> Cycle:
    """So many stages are done, and the next is as told."""
    stages = [CycleStage(stage=name, state="done") for name in NAMES[:done]]
    stages += [CycleStage(stage=name) for name in NAMES[done:]]
    if done < len(NAMES):
        stages[done] = CycleStage(stage=NAMES[done], **facts)  # type: ignore[arg-type]
    return row(stages=tuple(stages), parent="first" if done else None)


def planned(last: Cycle | None, facts: ChannelState = AT_FIRST, failed: int = 0) -> Action:
    return next_action(last, RETRY, facts, NOW, failed)


def test_the_first_cycle_and_the_one_after_an_end() -> None:
    assert planned(None) == OpenCycle(1)
    assert planned(row(ended_at=NOW)) == OpenCycle(5)


@pytest.mark.parametrize(
    ("failed", "pause_s"), [(0, 0), (1, 10), (2, 20), (3, 40), (4, 60), (999, 60)]
)
def test_cycles_that_fail_come_at_growing_pauses(failed: int, pause_s: int) -> None:
    assert pause_us(RETRY, failed) == pause_s * SECOND
    action = planned(row(ended_at=NOW - 5 * SECOND), failed=failed)
    if not failed:
        assert action == OpenCycle(5)
    else:
        assert isinstance(action, Wait)
        assert action.until_us == NOW + (pause_s - 5) * SECOND


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_each_stage_in_its_turn(at: int) -> None:
    assert planned(cycle(at)) == RunStage(NAMES[at])
    held = planned(cycle(at, state="running", owner="ann", lease_until=NOW + 5))
    assert held == Wait(f"ann runs {NAMES[at]}", NOW + 6)
    assert planned(cycle(at, state="running", owner="ann", lease_until=NOW - 1)) == RunStage(
        NAMES[at]
    )
    paused = planned(cycle(at, not_before=NOW + 9, why="no disk"))
    assert paused == Wait("no disk", NOW + 9)
    assert planned(cycle(at, state="failed", why="no disk")) == EndCycle(
        "failed", f"{NAMES[at]}: no disk"
    )
    over = planned(cycle(at, state="over", why="worse", result={"ends": "rolled_back"}))
    assert over == EndCycle("rolled_back", "worse")


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_budget_that_ends_cycles_ends_them_until_the_promotion(at: int) -> None:
    def planned_at(seconds: float, *, budgeted: bool = True, **facts: object) -> Action:
        begun = replace(cycle(at, **facts), began_at=NOW if at else None, budget_s=60)
        later_us = NOW + round(seconds * SECOND)
        return next_action(begun, RETRY, AT_FIRST, later_us, budgeted=budgeted)

    run = RunStage(NAMES[at])
    assert planned_at(59.9) == planned_at(60, budgeted=False) == run
    over = EndCycle("over_budget", f"its budget of 60 s was used up in {NAMES[at]}")
    is_ended = 0 < at < NAMES.index("promote")
    assert planned_at(60) == (over if is_ended else run)
    # Whoever has it ends it: it notices by itself.
    held = planned_at(60, state="running", owner="ann", lease_until=NOW + 90 * SECOND)
    assert isinstance(held, Wait)
    waits = planned_at(60, not_before=NOW + 90 * SECOND, why="no disk")
    if is_ended:
        assert waits == EndCycle("over_budget", f"{over.why}: no disk")
        # What was wrong before is why it ended.
        early = planned_at(99, state="failed", why="no disk", ended_at=NOW + 59 * SECOND)
        late = planned_at(99, state="failed", why="no disk", ended_at=NOW + 60 * SECOND)
        assert (early, late) == (EndCycle("failed", f"{NAMES[at]}: no disk"), waits)


def test_when_all_is_done_it_is_promoted() -> None:
    assert planned(cycle(len(NAMES))) == EndCycle("promoted", "")


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_channel_that_moved_ends_a_cycle_until_it_is_promoted_by_it(at: int) -> None:
    action = planned(cycle(at), channel(checkpoint="other"))
    if 0 < at < NAMES.index("promote"):
        assert isinstance(action, EndCycle)
        assert (action.outcome, "moved to other" in action.why) == ("refused", True)
    else:
        assert action == RunStage(NAMES[at])


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (channel(checkpoint=None), "nothing is promoted"),
        (channel(checkpoint="first", pinned=True), "pinned"),
        (channel(checkpoint="first", canary="other"), "canary other"),
    ],
)
def test_on_a_channel_that_is_not_ready_nothing_begins(facts: ChannelState, why: str) -> None:
    action = planned(cycle(0), facts)
    assert isinstance(action, Wait)
    assert why in action.why


@pytest.mark.parametrize(
    ("start", "tokens", "ago_s", "why"),
    [
        (CycleStart(100, None), 100, None, None),
        (CycleStart(100, None), 99, 9_999, "99 of 100 fresh scored tokens from first"),
        (CycleStart(None, 60), 0, None, None),
        (CycleStart(None, 60), 0, 60, None),
        (CycleStart(None, 60), 999, 59, "1 s until the next scheduled start"),
        (CycleStart(100, 60), 100, 1, None),
        (CycleStart(100, 60), 0, 61, None),
        (
            CycleStart(100, 60), 7, 20,
            "7 of 100 fresh scored tokens from first, or 40 s until the next scheduled start",
        ),
    ],
)  # fmt: skip
def test_when_a_cycle_begins(
    start: CycleStart, tokens: int, ago_s: int | None, why: str | None
) -> None:
    began = None if ago_s is None else NOW - ago_s * SECOND
    assert missing_for_start(start, tokens, "first", began, NOW) == why


# Which attempts are missing where some are too old

TASKS = ["a", "b"]
OLD, FRESH = 50, 200


def kept(task: str, attempt: int, at: int = FRESH) -> RecordedAttempt:
    return RecordedAttempt(Attempt(task=task, attempt=attempt, score=1), "run", at)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([], [(0, "a"), (0, "b"), (1, "a"), (1, "b")]),
        ([kept("a", 0), kept("b", 0)], [(1, "a"), (1, "b")]),
        ([kept("a", 0, OLD), kept("a", 1, OLD), kept("b", 0)], [(2, "a"), (3, "a"), (1, "b")]),
        ([kept("a", 0, OLD), kept("a", 1), kept("a", 2), kept("b", 7)], [(0, "b")]),
        ([kept(task, at) for task in "ab" for at in (3, 4)], []),
        ([kept("z", 0), kept("a", 1), kept("a", 2, OLD), kept("b", 0), kept("b", 1)], [(0, "a")]),
    ],
)
def test_so_many_that_are_not_too_old(
    known: list[RecordedAttempt], wanted: list[tuple[int, str]]
) -> None:
    found = missing_attempts(known, TASKS, 2, 100)
    assert found == [PlannedAttempt(task, attempt) for attempt, task in wanted]
    # Whoever is killed on the way asks for the rest.
    for one in range(len(found)):
        made = [kept(each.task, each.attempt) for each in found[:one]]
        assert missing_attempts([*known, *made], TASKS, 2, 100) == found[one:]


def test_without_an_age_nothing_is_too_old() -> None:
    assert missing_attempts([kept(task, 0, OLD) for task in TASKS], TASKS, 1, None) == []
    assert oldest_accepted_us(None, 5) is None


def test_what_will_be_too_old_before_long_is_so_already() -> None:
    assert oldest_accepted_us(1_000, 10**9) == 10**9 - 900 * 10**6
