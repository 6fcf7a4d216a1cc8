"""`penstock gate` as a person uses it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from tests.support.checkpoint_factory import PASS, TENANT, add, promote, set_policy

Run = Callable[..., Any]
POLICY = """
[[require]]
suite = "core"
margin = 0.1
[[guard]]
suite = "core"
metric = "completion_tokens"
max_increase = 0.2
"""
TASKS = [f"t-{at}" for at in range(40)]


@pytest.fixture(scope="module")
def scored_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel at `old`, and `good` and `bad` that were scored as well; nobody changes it."""
    data = tmp_path_factory.mktemp("scored") / "data"
    with open_or_make(load_settings(data, environment={})) as lake:
        database = lake.database
        add(database, "old", "good", "bad")
        tasks = tuple(SuiteTask(one) for one in TASKS)
        add_suite(database, TENANT, SuiteVersion("core", "v1", tasks))
        set_policy(database, POLICY)
        promote(database, "old", PASS)
        for name, score, tokens in (("old", 1.0, 100), ("good", 1.0, 101), ("bad", 0.0, 90)):
            results = [
                Attempt(task=task, attempt=at, score=score, completion_tokens=tokens)
                for task in TASKS
                for at in range(2)
            ]
            with database.write() as connection:
                record_attempts(connection, AttemptScope(TENANT, "core", "v1", name), "r", results)
    return data


@pytest.fixture
def scored(run: Run, data: Path, scored_lake: Path) -> Run:
    shutil.copytree(scored_lake, data)
    return run


def test_check_tells_the_outcome_first_then_why_and_the_numbers(scored: Run) -> None:
    good = scored("gate", "check", "good")
    assert good.status == 0
    assert good.out.startswith("PASS: good for production, after old\n")
    assert "margin 0.1" in good.out
    assert "max_increase 20%" in good.out
    bad = scored("gate", "check", "bad")
    assert bad.status == 1
    lines = bad.out.splitlines()
    assert lines[0] == "FAIL: bad for production, after old"
    assert lines[1].strip().startswith("core score: at least")
    as_json = scored("gate", "check", "good", "--json").json()
    assert as_json["outcome"] == "PASS"
    assert as_json["verdict"]["requirements"][0]["tasks"] == 40


def test_without_an_incumbent_no_row_says_that_a_margin_was_passed(scored: Run, data: Path) -> None:
    """An idle part keeps nobody out and shows nothing: its row does not contradict the verdict."""
    staging = ("--channel", "staging")
    with open_or_make(load_settings(data)) as lake:
        set_policy(lake.database, POLICY, "staging")
    told = scored("gate", "check", "good", *staging)
    assert told.out.startswith("INCONCLUSIVE: good for staging, as its first checkpoint")
    rows = [line for line in told.out.splitlines() if line.startswith("core ")]
    assert len(rows) == 2
    assert all("no incumbent" in row and "PASS" not in row for row in rows)
    verdict = scored("gate", "check", "good", *staging, "--json").json()["verdict"]
    for part in (*verdict["requirements"], *verdict["guards"]):
        assert (part["idle"], part["why"]) == (True, "there is no incumbent to compare with")


def test_check_of_what_is_not_there_is_no_pass(scored: Run) -> None:
    assert scored("gate", "check", "nobody").status == 2
    other = scored("gate", "check", "good", "--channel", "staging")
    assert other.status == 1
    assert "ERROR: good for staging" in other.out
    assert "has no policy" in other.out


def test_plan_tells_power_and_what_it_takes(scored: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.replace("0.1", "0.05"))
    told = scored("gate", "plan", "core", "--policy", str(policy), "--attempts", "4")
    assert told.status == 0
    assert "recorded attempts of both" in told.out
    assert "for 80 % at 4 attempts: 59 tasks" in told.out  # nothing differs: 0.95 ** 59 < 0.05
    assert scored("gate", "plan", "other", "--policy", str(policy)).status == 2


def test_plan_of_an_unknown_suite_says_what_it_assumes(
    run: Run, data: Path, tmp_path: Path
) -> None:
    with open_or_make(load_settings(data)):
        pass
    policy = tmp_path / "policy.toml"
    policy.write_text('[[require]]\nsuite = "core"\nmargin = 0.05\n')
    told = run("gate", "plan", "core", "--policy", str(policy), "--tasks", "80", "--attempts", "4")
    assert "assumed" in told.out
    row = next(line.split() for line in told.out.splitlines() if line.split()[:2] == ["80", "4"])
    assert 0.09 < float(row[3].rstrip("%")) / 100 < 0.2  # margin 0.02: one in six by a paired t


def test_what_is_left_out_is_told_by_check_and_history(scored: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    reason = 'tasks = ["t-3", "t-9"]\nreason = "their image is gone"\n'
    policy.write_text(f'{POLICY}[[leave_out]]\nsuite = "core"\n{reason}')
    command = ("channels", "policy", "production", "--set", str(policy), "--reason", "broken")
    assert scored(*command).status == 0
    good = scored("gate", "check", "good")
    assert good.out.startswith("PASS")
    assert "core: the policy leaves out t-3, t-9: their image is gone." in good.out
    assert "suite    core v1, 2 tasks left out" in good.out
    assert scored("promote", "good", "--reason", "as good").status == 0
    assert ", without t-3, t-9 of core" in scored("channels", "history", "production").out
    past = scored("channels", "history", "production", "--json").json()
    assert past["left_out"] == {past["changes"][-1]["verdict"]: {"core": ["t-3", "t-9"]}}
    unexplained = policy.read_text().replace("reason", "# reason")
    policy.write_text(unexplained)
    refused = scored(*command)
    assert refused.status == 2
    assert "needs a reason" in refused.err


def test_check_tells_what_is_missing_with_the_numbers(scored: Run, data: Path) -> None:
    with open_or_make(load_settings(data)) as lake:
        add(lake.database, "crashed")
        results = [
            Attempt(task=task, attempt=0, score=1.0, completion_tokens=100) for task in TASKS[1:]
        ]
        scope = AttemptScope(TENANT, "core", "v1", "crashed")
        with lake.database.write() as connection:
            record_attempts(connection, scope, "r", results)
    told = scored("gate", "check", "crashed")
    assert told.out.startswith("INCONCLUSIVE: crashed for production")
    assert "crashed has no score at 1 of 40 tasks (t-0): each counts at its worst" in told.out
    assert "no score at 1 task," in told.out
    row = next(line for line in told.out.splitlines() if line.startswith("core score"))
    assert "+0.0000" in row
    assert "39 of 40 × 1 / 2" in row


def test_plan_counts_what_is_missing(scored: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    command = ("gate", "plan", "core", "--policy", str(policy), "--attempts", "2", "--tasks", "80")
    whole = scored(*command, "--json").json()[0]
    assert whole["missing"] == {"errors": 0.0, "unscored": 0.0, "mean": 0.5}
    gaps = scored(*command, "--unscored", "0.05", "--errors", "0.02", "--json").json()[0]
    assert gaps["missing"]["unscored"] == 0.05

    def power(plan: Any) -> float:
        return float(next(cell["power"] for cell in plan["cells"] if cell["margin"] == 0.1))

    assert power(gaps) < power(whole)
    told = scored(*command, "--unscored", "0.05")
    assert "5.0% of tasks have no score on one side; both count at their worst" in told.out
    assert scored(*command, "--errors", "2").status == 2
