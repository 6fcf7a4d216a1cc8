"""A run does what changed or matured, once; what was known before stays readable."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.execution.executor import TaskResult
from penstock.lake.catalog import create_snapshot, current
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.rewards.due_sessions import SessionFilter
from penstock_jobs.rewards.runs import RunRequest, commit, run
from tests.support.lakes import START_US, HandLake, hand_lake, make_event
from tests.support.reward_runs import (
    CURRENT,
    DAY_US,
    DEFINITION,
    SECOND,
    WHOLE,
    run_at,
    seen,
    started,
    thumbs,
    whole,
    worked,
)

Task = TypeVar("Task")
Result = TypeVar("Result")


@pytest.fixture
def lake(tmp_path: Path, each_database: None) -> Iterator[HandLake]:
    """Settings that make a bucket of every session or two."""
    with hand_lake(tmp_path, bucket_bytes_target=8000) as lake:
        yield lake


def test_a_run_does_all_sessions_and_the_next_does_none(lake: HandLake) -> None:
    for number in range(5):
        lake.store([*worked(f"s{number}"), seen(f"s{number}", 303)])
    first = run_at(lake, 86_400)
    assert (first.sessions, first.changed, first.matured, first.events) == (5, 5, 0, 20)
    assert first.buckets > 1
    assert whole(lake) == {f"s{number}": ("scored", 1.0) for number in range(5)}
    second = run_at(lake, 90_000)
    assert (second.sessions, second.buckets, second.rows) == (0, 0, {})
    assert verify(lake.lake).findings == []


def test_what_waits_is_done_when_it_is_due_and_not_before(lake: HandLake) -> None:
    """The edit at 2 s is pending at 300 s until 375 s have passed, the session until an hour."""
    lake.store(
        [
            *worked("s"),
            thumbs("s", 3),
            make_event("s", 4, "session_end", payload={"reason": "completed"}),
        ]
    )
    run_at(lake, 10)
    assert whole(lake) == {"s": ("pending", None)}
    [due] = lake.rows(
        "select due_at from rewards where name = 'reward' and target_kind = 'session'"
    )
    assert due["due_at"].timestamp() == (START_US + 377 * SECOND) / SECOND
    assert run_at(lake, 376).sessions == 0
    matured = run_at(lake, 377)
    assert (matured.sessions, matured.changed, matured.matured) == (1, 0, 1)
    assert whole(lake) == {"s": ("scored", 1.0)}, "the edit is censored, the thumb is up"
    assert run_at(lake, DAY_US / SECOND).sessions == 0


def test_a_session_that_goes_on_waits_until_it_has_rested(lake: HandLake) -> None:
    lake.store(
        [
            *worked("s"),
            *worked("other"),
            make_event("other", 5, "session_end", payload={"reason": "completed"}),
        ]
    )
    first = run_at(lake, 10)
    assert (first.sessions, first.changed, first.live) == (1, 1, 1)
    assert set(whole(lake)) == {"other"}
    lake.store([thumbs("s", 200)])
    # It was to rest at 302 s, and rests at 500 s.
    assert (run_at(lake, 303).live, run_at(lake, 499).sessions) == (1, 1), "`other` matures"
    rested = run_at(lake, 500)
    assert (rested.sessions, rested.changed, rested.matured, rested.live) == (1, 0, 1, 0)
    assert whole(lake)["s"] == ("scored", 1.0)


def test_a_refusal_does_not_wait_and_a_chain_does(lake: HandLake) -> None:
    lake.store([*worked("s"), *worked("other", 80_000), seen("s", 303)])
    run_at(lake, 86_400)
    lake.store([make_event("other", 86_401, "session_start", payload={"consent": "no_train"})])
    lake.store([started("resumed", "s", "compaction", 86_402), *worked("resumed", 86_403)])
    again = run_at(lake, 86_410)
    assert (again.changed, again.live) == (1, 1), "the refusal at once"
    [row] = lake.rows(
        "select outcome from outcomes where session_id = 'other' and superseded_at is null"
    )
    assert row == {"outcome": "excluded"}
    assert run_at(lake, 86_800).sessions == 2, "the whole chain"


def test_horizons_of_hours_are_computed_one_by_one_and_of_minutes_together(lake: HandLake) -> None:
    text = DEFINITION.text.replace("[0, 300]", "[0, 60, 300, 14400, 86400]")
    definition = parse_definition(text.replace("horizon_s = 300", "horizon_s = 86400"), "long")
    lake.store([*worked("s"), make_event("s", 4, "session_end", payload={"reason": "completed"})])
    # The edit at 2 s: with the tolerance of a quarter its windows end after 75, 375, 18,000, …
    matured = [run_at(lake, at, definition).matured for at in (5, 80, 376, 377, 18_001, 18_002)]
    assert matured == [0, 0, 0, 1, 0, 1]
    assert run_at(lake, 2 + 1.25 * 86_400, definition).matured == 1


def test_a_late_event_opens_a_session_again_and_what_was_known_stays(lake: HandLake) -> None:
    lake.store([*worked("s"), seen("s", 303), *worked("other"), seen("other", 303)])
    run_at(lake, 86_400)
    create_snapshot(lake.lake.database, "before")
    lake.store([thumbs("s", 400, "down")])
    again = run_at(lake, 86_500)
    assert (again.sessions, again.changed) == (1, 1)
    assert whole(lake) == {"s": ("scored", 0.0), "other": ("scored", 1.0)}
    assert whole(lake, "before") == {"s": ("scored", 1.0), "other": ("scored", 1.0)}
    [old, new] = lake.rows(
        """select value, computed_at, superseded_at from rewards
        where session_id = 's' and name = 'reward' and target_kind = 'session'
        order by computed_at"""
    )
    assert (old["value"], new["value"]) == (1.0, 0.0)
    assert old["superseded_at"] == new["computed_at"]
    assert new["superseded_at"] is None
    outcomes = lake.rows("select session_id from outcomes where superseded_at is null order by all")
    assert outcomes == [{"session_id": "other"}, {"session_id": "s"}]


def test_an_event_of_the_future_waits_for_its_time(lake: HandLake) -> None:
    lake.store([*worked("s"), seen("s", 303), thumbs("s", 100_000, "down")])
    run_at(lake, 86_400)
    assert whole(lake) == {"s": ("scored", 1.0)}
    assert run_at(lake, 99_999).sessions == 0
    assert run_at(lake, 100_000).matured == 1
    assert whole(lake) == {"s": ("scored", 0.0)}


def test_merges_are_no_news_and_hide_none(lake: HandLake) -> None:
    for number in range(4):
        lake.store([*worked(f"s{number}"), seen(f"s{number}", 303)])
    run_at(lake, 86_400)
    merge(lake.lake, current(lake.lake.database).segments)
    assert run_at(lake, 86_401).sessions == 0
    lake.store([thumbs("s1", 400)])
    merge(lake.lake, current(lake.lake.database).segments)
    collect(lake.lake, grace_s=0)  # the segment that brought the news is gone
    assert (run_at(lake, 86_402).sessions, run_at(lake, 86_403).sessions) == (1, 0)


def test_consent_that_is_taken_back_excludes_the_session(lake: HandLake) -> None:
    lake.store([*worked("s"), seen("s", 303)])
    run_at(lake, 86_400)
    lake.store([make_event("s", 500, "session_start", payload={"consent": "no_train"})])
    assert run_at(lake, 86_500).sessions == 1
    [row] = lake.rows("select outcome, reason from outcomes where superseded_at is null")
    assert row == {"outcome": "excluded", "reason": "no_train"}
    [reward] = lake.rows(WHOLE)
    assert (reward["state"], reward["reason"]) == ("censored", "excluded: no_train")


def test_tenants_are_computed_together_and_never_mixed(lake: HandLake) -> None:
    for tenant, value in (("a", "up"), ("b", "down")):
        lake.store([*worked("s"), seen("s", 303), thumbs("s", 310, value)], tenant)
    assert run_at(lake, 86_400).sessions == 2
    assert [row["value"] for row in lake.rows(WHOLE, tenant="a")] == [1.0]
    assert [row["value"] for row in lake.rows(WHOLE, tenant="b")] == [0.0]
    assert lake.rows("select * from rewards") == []


def test_what_a_run_left_out_is_done_by_a_backfill(lake: HandLake) -> None:
    lake.store([*worked("old"), seen("old", 303), *worked("new", 5000), seen("new", 5303)])
    since = SessionFilter(since_us=START_US + 4000 * SECOND)
    assert run_at(lake, 86_400, sessions=since).sessions == 1
    assert set(whole(lake)) == {"new"}
    assert run_at(lake, 86_401).sessions == 0
    assert run_at(lake, 86_402, backfill=True).sessions == 1
    assert set(whole(lake)) == {"new", "old"}
    assert run_at(lake, 86_403, backfill=True).sessions == 0


def test_only_the_sessions_of_a_project(lake: HandLake) -> None:
    for name in ("shop", "blog"):
        lake.store([one | {"project": name} for one in worked(name)])
    assert run_at(lake, 86_400, sessions=SessionFilter(project="shop")).sessions == 1
    assert set(whole(lake)) == {"shop"}


def test_versions_stand_side_by_side(lake: HandLake) -> None:
    lake.store([*worked("s"), seen("s", 303), thumbs("s", 310, "down")])
    other = parse_definition(DEFINITION.text.replace("weight = 1.0", "weight = 3.0", 1), "other")
    run_at(lake, 86_400)
    assert run_at(lake, 86_401, other).sessions == 1
    found = lake.rows(
        f"""select definition_version as version, value from ({CURRENT})
        where name = 'reward' and target_kind = 'session'"""
    )
    assert {row["version"]: row["value"] for row in found} == {
        DEFINITION.version: 0.0,
        other.version: 0.5,
    }


class CutOff(Exception):
    """The process is gone."""


class Stops(InlineExecutor):
    """Is gone after so many tasks."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        for number, done in enumerate(super().run(function, tasks)):
            if number == self._after:  # its file is written, and nobody will ever commit it
                raise CutOff
            yield done


def test_a_run_that_was_cut_off_is_taken_up_where_it_was(lake: HandLake) -> None:
    for number in range(6):
        lake.store([*worked(f"s{number}"), seen(f"s{number}", 303)])
    with pytest.raises(CutOff):
        run(lake.lake, Stops(2), RunRequest(DEFINITION), now_us=START_US + DAY_US)
    there = set(whole(lake))
    assert 0 < len(there) < 6
    lake.store([thumbs(min(there), 400, "down")])  # one of those that were done changes
    rest = run_at(lake, 86_500)
    assert rest.sessions == 6 - len(there) + 1
    every = {f"s{number}": ("scored", 1.0) for number in range(6)}
    assert whole(lake) == every | {min(there): ("scored", 0.0)}
    assert run_at(lake, 86_600).sessions == 0
    collect(lake.lake, grace_s=0)
    assert verify(lake.lake).findings == []
    stored = {found.name for found in lake.lake.store.list("rewards")}
    assert len(stored) == 2 * verify(lake.lake).others["reward_file"]


def test_what_saw_less_never_supersedes_what_saw_more(lake: HandLake) -> None:
    """Two runs at once: the one that began earlier commits last."""
    lake.store(worked("s"))
    late: list[TaskResult[Any, Any]] = []

    class Hangs(InlineExecutor):
        def run(
            self, function: Callable[[Task], Result], tasks: Iterable[Task]
        ) -> Iterator[TaskResult[Task, Result]]:
            late.extend(super().run(function, tasks))
            return iter(())

    run(lake.lake, Hangs(), RunRequest(DEFINITION), now_us=START_US + 10 * SECOND)
    lake.store([seen("s", 303), thumbs("s", 310, "down")])
    run_at(lake, 86_400)
    assert whole(lake) == {"s": ("scored", 0.0)}
    for done in late:
        commit(lake.lake, done.task, done.result)
    assert whole(lake) == {"s": ("scored", 0.0)}
    assert run_at(lake, 86_401).sessions <= 1, "it may be looked at once more"
    assert whole(lake) == {"s": ("scored", 0.0)}


def test_files_that_are_merged_hold_the_same_rewards(tmp_path: Path) -> None:
    everything = "select * from rewards order by all"
    with hand_lake(tmp_path, compaction_segments_min=4) as lake:
        for number in range(3):
            lake.store([*worked(f"s{number}"), seen(f"s{number}", 303)])
            run_at(lake, 86_400 + number)
        lake.store([thumbs("s1", 400)])
        create_snapshot(lake.lake.database, "before")
        before = lake.rows(everything)
        run_at(lake, 86_500)
        assert verify(lake.lake).others["reward_file"] == 5, "four, and the one that they became"
        after = lake.rows(everything)
        assert lake.rows(everything, "before") == before
        assert len(after) > len(before)
        collect(lake.lake, grace_s=0)
        assert verify(lake.lake).others["reward_file"] == 4, "the snapshot needs three of them"
        assert lake.rows(everything) == after
        assert verify(lake.lake).findings == []
