"""Attempts are kept once, as they were."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.privacy.retention import run_rules, set_rule
from penstock.backends.database import migrations
from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock.registry.checkpoints.attempts import (
    Attempt,
    attempts_of,
    begin_run,
    check_attempt,
    note_problem,
    record_attempts,
    runs_of,
    versions_tried,
)
from penstock.registry.checkpoints.checkpoint import AttemptConflict
from penstock.registry.checkpoints.integrity import read_checked
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import (
    SuiteContent,
    SuiteTask,
    SuiteVersion,
    add_suite,
    suite_names,
    suite_versions,
)
from penstock.registry.checkpoints.tables import attempt_output, benchmark_attempt

PLACE = AttemptScope("default", "core", "v1", "ckpt-1")
SOLVED = Attempt(task="t-1", attempt=0, score=1.0, completion_tokens=812, edited=True)
BROKEN = Attempt(task="t-2", attempt=0, error="the engine was away", retries=3)


@pytest.fixture
def database(tmp_path: Path, each_database: None) -> Iterator[Database]:
    database = Database.of(load_settings(tmp_path))
    migrations.upgrade(database)
    yield database
    database.close()


def keep(
    database: Database, *results: Attempt, place: AttemptScope = PLACE, run: str = "r1"
) -> int:
    with database.write() as connection:
        return len(record_attempts(connection, place, run, results))


def test_results_are_read_as_they_were_kept(database: Database) -> None:
    assert keep(database, BROKEN, SOLVED) == 2
    kept = attempts_of(database, PLACE)
    assert [one.result for one in kept] == [SOLVED, BROKEN]
    assert {one.run for one in kept} == {"r1"}
    assert [one.result.status for one in kept] == ["scored", "error"]
    for elsewhere in ("suite", "suite_version", "checkpoint", "tenant"):
        assert attempts_of(database, replace(PLACE, **{elsewhere: "other"})) == []


def test_the_same_results_again_are_no_news(database: Database) -> None:
    assert keep(database, SOLVED) == 1
    assert keep(database, SOLVED, BROKEN, run="r2") == 1
    assert [one.run for one in attempts_of(database, PLACE)] == ["r1", "r2"]


def test_a_score_takes_the_place_of_an_error(database: Database) -> None:
    keep(database, SOLVED, BROKEN)
    again = Attempt(task="t-2", attempt=0, score=0.25)
    assert keep(database, replace(BROKEN, error="said otherwise"), run="r2") == 0
    assert keep(database, SOLVED, again, run="r3") == 1
    assert [(one.result, one.run) for one in attempts_of(database, PLACE)] == [
        (SOLVED, "r1"),
        (again, "r3"),
    ]
    assert keep(database, BROKEN, run="r4") == 0


def test_another_result_for_the_same_attempt_is_refused_and_nothing_is_kept(
    database: Database,
) -> None:
    keep(database, SOLVED)
    with pytest.raises(AttemptConflict, match=r"the task t-1 of core is already\srecorded"):
        keep(database, BROKEN, replace(SOLVED, score=0.0), run="r2")
    assert [one.result for one in attempts_of(database, PLACE)] == [SOLVED]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"score": float("nan")}, "scores lie between 0 and 1"),
        ({"score": 1.5}, "scores lie between 0 and 1"),
        ({"score": -0.1}, "scores lie between 0 and 1"),
        ({"score": None}, "either a score or an error"),
        ({"error": "and a score"}, "either a score or an error"),
        ({"task": ""}, "a task's name"),
        ({"task": "a\nb"}, "a task's name"),
        ({"attempt": -1}, "must be 0 or more"),
        ({"cost_usd": float("inf")}, "cost_usd is inf"),
        ({"completion_tokens": -5}, "completion_tokens is -5"),
    ],
)
def test_what_no_attempt_can_be_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_attempt(replace(SOLVED, **changed))


def test_versions_are_listed_by_their_latest_attempt(database: Database) -> None:
    for version, result, moment in (("v1", SOLVED, 1), ("v2", SOLVED, 2), ("v1", BROKEN, 3)):
        keep(database, result, place=replace(PLACE, suite_version=version))
        mine = benchmark_attempt.c
        kept = (mine.suite_version == version) & (mine.task == result.task)
        with database.write() as connection:
            connection.execute(sa.update(benchmark_attempt).where(kept).values(scored_at=moment))
    assert versions_tried(database, "default", "core", "ckpt-1") == ["v2", "v1"]


def test_a_version_of_a_suite_is_kept_as_it_was_first_said(database: Database) -> None:
    content = SuiteContent(texts=(("t-1", "Fix it."),), repos=("acme/tool",))
    first = SuiteVersion("core", "v1", (SuiteTask("t-1", ("python",)),), content)
    later = SuiteVersion("core", "v2", ())
    assert add_suite(database, "default", first)
    assert add_suite(database, "default", later)
    assert not add_suite(database, "default", replace(first, tasks=()))
    assert suite_versions(database, "default", "core") == [first, later]
    assert suite_names(database, "default") == ["core"]
    assert suite_names(database, "other") == []


def test_an_output_goes_when_it_is_old_and_the_journal_stays_as_it_was(
    tmp_path: Path, each_database: None
) -> None:
    with open_or_make(load_settings(tmp_path)) as lake:
        run = begin_run(lake.database, PLACE, source="agent", conditions={})
        keep(lake.database, SOLVED, BROKEN, run=run)
        problem = {"task": "t-2", "attempt": 0, "problem": BROKEN.error, "output": "Traceback …"}
        with lake.database.write() as connection:
            note_problem(connection, PLACE, run, problem)
        assert runs_of(lake.database, PLACE)[0].problems == [problem]
        rule = {"tenant": PLACE.tenant, "breaks_snapshots": False, "by": "tester"}
        set_rule(lake, "attempts", 86_400, **rule)  # type: ignore[arg-type]
        assert [outcome.count.rows for outcome in run_rules(lake)] == [0]
        with lake.database.write() as connection:
            connection.execute(sa.update(attempt_output).values(recorded_at=1))
        assert [outcome.count.rows for outcome in run_rules(lake, dry=True)] == [1]
        assert [outcome.count.rows for outcome in run_rules(lake)] == [1]
        [left] = runs_of(lake.database, PLACE)[0].problems
        assert left["output"] == f"sha256:{sha256('Traceback …'.encode()).hexdigest()}"
        with lake.database.read() as connection:
            bound = read_checked(connection, PLACE)
        assert (len(bound.attempts), list(bound.alterations)) == (2, [])
