"""What planning does for a session does not grow with the number of sessions."""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.catalog import pinned
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import slice_bounds, slice_tasks
from penstock_jobs.shards.selection import dictionary_codes as name_numbers
from penstock_jobs.shards.selection import planned_sessions, session_facts
from penstock_jobs.shards.selection.plan import plan_shard
from penstock_jobs.shards.selection.session_facts import PinnedSessions
from tests.support.engine_lake import DAY_US, SESSIONS, built, talk
from tests.support.lakes import START_US, HandLake, hand_lake

#: Of the code that plans. Libraries do the same for any number, or are not ours to count.
ROOMS = (
    "/penstock_jobs/shards/",
    "/penstock/lake/buckets.py",
    "/penstock/access/privacy/consents.py",
)


class StepCount:
    """Counts the steps of the interpreter: loops count, whoever wrote them as what."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, _value: Any) -> Any:
        if event == "opcode":
            self.steps += 1
            return self
        if not any(room in frame.f_code.co_filename for room in ROOMS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self


def fill_rewarded(lake: HandLake, sessions: int) -> None:
    for number in range(sessions):
        lake.send(talk(f"s{number:04d}", number))
    lake.writer().drain()
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=START_US + DAY_US)


def steps_to_plan(data: Path, sessions: int, recipe: Any) -> int:
    with hand_lake(data) as lake:
        fill_rewarded(lake, sessions)
        with pinned(lake.lake.database, "latest", renewed=True) as pin:
            pinned_sessions = PinnedSessions(lake.lake, InlineExecutor(), pin, "default")
            count, before = StepCount(), sys.gettrace()
            sys.settrace(count)
            try:
                plan = plan_shard(pinned_sessions, recipe)
                bounds = slice_bounds(plan)
                tasks = list(slice_tasks(pinned_sessions, recipe, plan, "owner", bounds))
            finally:
                sys.settrace(before)
        assert plan.chosen.num_rows == sessions
        assert len(tasks) == 1
    return count.steps


def test_planning_is_linear(tmp_path: Path, recipe: Callable[..., Any]) -> None:
    """From 10 sessions to 20, and from 20 to 40: twice as many steps more, not four times."""
    own = recipe()
    steps = [steps_to_plan(tmp_path / str(count), count, own) for count in (10, 20, 40)]
    first, second = steps[1] - steps[0], steps[2] - steps[1]
    assert first > 0
    assert second < 2.3 * first


def test_a_task_takes_along_its_own_sessions_alone(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    with pinned(lake.lake.database, "latest", renewed=True) as pin:
        sessions = PinnedSessions(lake.lake, InlineExecutor(), pin, "default")
        plan = plan_shard(sessions, recipe())
        tasks = slice_tasks(sessions, recipe(), plan, "", slice_bounds(plan))
        packed = [pickle.dumps(task) for task in tasks]
    names = {f"s{number:02d}" for number in range(SESSIONS)}
    held = [{name for name in names if name.encode() in task} for task in packed]
    assert [len(own) for own in held] == [SESSIONS // len(packed)] * len(packed)
    assert len(packed) > 1
    assert set().union(*held) == names


def test_a_shard_is_the_same_in_portions_of_any_size(
    lake: HandLake, recipe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = built(lake, recipe())
    monkeypatch.setattr(session_facts, "_FACTS_AT_ONCE", 5)
    monkeypatch.setattr(planned_sessions, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(name_numbers, "_AT_ONCE", 2)
    assert built(lake, recipe()).manifest.id == whole.manifest.id
