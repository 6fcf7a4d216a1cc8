"""`penstock bench`, as a person types it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteVersion, add_suite
from tests.support.checkpoint_factory import TENANT, set_policy
from tests.support.commands import penstock
from tests.support.suite_factory import SOLVE, make_suite

Bench = Callable[..., CompletedProcess[str]]


@pytest.fixture
def bench(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`penstock bench ARGUMENTS` on the test's lake."""
    monkeypatch.setenv("PENSTOCK_DATA", str(lake.settings.data))
    return partial(penstock, "bench")


def told(done: CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


@pytest.fixture
def suite(isolation: None, tmp_path: Path) -> str:
    tasks = {
        "easy": {"task.toml": 'prompt = "Add."\ntags = ["py"]'},
        "hard": {"task.toml": 'prompt = "Prove."\ntags = ["maths", "py"]'},
    }
    return str(make_suite(tmp_path / "suite", tasks))


def test_from_a_suite_to_a_comparison(bench: Bench, suite: str) -> None:
    lines = penstock("suites", "lint", suite)
    assert (lines.returncode, "2 tasks, 0 problems" in lines.stderr) == (0, True)
    assert told(penstock("suites", "register", suite, "--json"))["new"] is True
    assert told(penstock("suites", "register", suite, "--json"))["new"] is False

    report = f"{SOLVE}; echo '{{\"completion_tokens\": 10}}' > $PENSTOCK_REPORT"
    good = told(
        bench("run", suite, "--checkpoint", "new", "--agent", report, "--attempts", "2", "--json")
    )
    assert (good["made"], good["known"]) == (4, 0)
    assert good["summary"]["score"]["mean"] == 1
    assert good["summary"]["pass_at"]["2"]["mean"] == 1
    assert good["summary"]["completion_tokens"] == 10
    assert set(good["summary"]["tags"]) == {"maths", "py"}
    half = f'test "$PENSTOCK_TASK" = easy && {SOLVE}; true'
    person = bench("run", suite, "--checkpoint", "old", "--agent", half, "--no-isolation")
    assert person.returncode == 0
    assert "NOT ISOLATED: in 2 of 2 attempts" in person.stderr
    assert "score 0.500" in " ".join(person.stdout.split())
    assert "maths" not in person.stdout  # one task says nothing of a tag

    compared = told(bench("compare", "old", "new", "--suite", "mini", "--json"))
    assert (compared["before_mean"], compared["after_mean"]) == (0.5, 1.0)
    assert compared["difference"] == 0.5
    assert compared["lower"] < 0.5 < compared["upper"]
    shown = bench("compare", "old", "new", "--suite", suite).stdout
    assert "hard  0.000  1.000  +1.000" in shown.replace("   ", "  ")

    assert bench("show", "mini").stdout.count("2 NOT ISOLATED") == 1
    listed = told(bench("show", "mini", "--json"))
    assert [(one["checkpoint"], one["not_isolated"]) for one in listed] == [("new", 0), ("old", 2)]
    assert [task["not_isolated"] for task in listed[1]["summary"]["tasks"]] == [1, 1]
    assert compared["not_isolated"] == [2, 0]
    assert "attempts of old NOT ISOLATED" in shown
    assert [(one["on_frontier"]) for one in listed] == [True, False]
    one = bench("show", suite, "--checkpoint", "old").stdout
    assert "pass@1" in one
    assert "maths, py" in one
    assert "not isolated" in one
    assert "not isolated" not in bench("show", suite, "--checkpoint", "new").stdout


def test_a_variant_stands_beside_the_checkpoint_with_its_harness(
    bench: Bench, suite: str, tmp_path: Path
) -> None:
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Work well.")
    spend = 'test "$PENSTOCK_VARIANT" = high && spent=90 || spent=10; '
    spend += 'echo "{\\"completion_tokens\\": $spent}" > $PENSTOCK_REPORT; '
    low, high = spend + f'test "$PENSTOCK_TASK" = easy && {SOLVE}; true', spend + SOLVE
    asked = ("run", suite, "--checkpoint", "new", "--harness", "mine=1.4", "--prompt", str(prompt))
    assert bench(*asked, "--agent", low).returncode == 0
    run = told(bench(*asked, "--agent", high, "--variant", "high", "--json"))
    [made] = run["runs"]
    assert (run["suite"], made["conditions"]["harness"]["version"]) == ("mini@high", "1.4")
    assert made["conditions"]["harness"]["prompt"].startswith("sha256:")
    assert bench(*asked, "--agent", high, "--variant", "a@b").returncode == 2

    plain, varied = told(bench("show", "mini", "--json"))
    assert (plain["suite"], varied["suite"]) == ("mini", "mini@high")
    # The better one costs more.
    assert (plain["on_frontier"], varied["on_frontier"]) == (True, True)
    table = bench("show", "mini").stdout
    assert "new (high)" in table
    one = bench("show", "mini", "--checkpoint", "new")
    assert "harness: mine 1.4 (prompt sha256:" in one.stderr


def test_a_new_version_says_whose_scores_do_not_count(bench: Bench, lake: Lake, suite: str) -> None:
    scope = AttemptScope(TENANT, "mini", "sha256:before", "old")
    add_suite(lake.database, TENANT, SuiteVersion("mini", scope.suite_version, ()))
    with lake.database.write() as connection:
        record_attempts(connection, scope, "r", [Attempt(task="easy", attempt=0, score=1.0)])
    assert bench("show", "mini").stderr == ""
    registered = penstock("suites", "register", suite).stderr
    for said in (registered, bench("show", "mini").stderr):
        assert "Not scored at it: old at sha256:before" in said
        assert "name the version that counts under [suites] of the policy" in said
    assert "an older version" in bench("show", "mini").stdout
    [shown] = told(bench("show", "mini", "--json"))
    assert shown["newest_version"] != shown["suite_version"] == "sha256:before"


def test_rows_that_were_changed_by_hand_are_put_back(bench: Bench, lake: Lake) -> None:
    for version in ("v1", "v2"):
        scope = AttemptScope(TENANT, "mini", version, "old")
        with lake.database.write() as connection:
            record_attempts(connection, scope, "r", [Attempt(task="easy", attempt=0, score=1.0)])
    with lake.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM benchmark_attempt WHERE suite_version = 'v1'")
        connection.exec_driver_sql("UPDATE benchmark_attempt SET score = 0")
    done = bench("restore", "mini", "--checkpoint", "old")
    assert done.stdout.splitlines() == [
        "attempt 0 at easy of old on mini was removed",
        "attempt 0 at easy of old on mini was edited: its score is 0.0; 1.0 was recorded",
    ]
    assert done.stderr.endswith("restored: 2\n")
    assert told(bench("restore", "mini", "--checkpoint", "old", "--json"))["restored"] == []
    unknown = bench("restore", "mini", "--checkpoint", "nobody")
    assert (unknown.returncode, "checkpoint 'nobody' does not exist" in unknown.stderr) == (2, True)


def test_what_is_refused(bench: Bench, suite: str, tmp_path: Path) -> None:
    unknown = bench("run", suite, "--checkpoint", "nwe", "--agent", SOLVE)
    assert (unknown.returncode, "checkpoint 'nwe' does not exist" in unknown.stderr) == (2, True)
    run = ("run", suite, "--checkpoint", "new", "--agent", SOLVE)
    lost = bench(*run, "--pass-env", "NOT_THERE")
    assert (lost.returncode, "variable is not set" in lost.stderr) == (2, True)
    gone = bench(*run, "--serving", "http://127.0.0.1:1/v1")
    assert (gone.returncode, "does not answer" in gone.stderr) == (3, True)
    bad = make_suite(tmp_path / "bad", {"always": {"check/check.py": "raise SystemExit(0)"}})
    lint = penstock("suites", "lint", str(bad))
    assert lint.returncode == 1
    assert "always" in lint.stdout
    nothing = bench("compare", "old", "new", "--suite", "mini")
    assert (nothing.returncode, "common version" in nothing.stderr) == (2, True)


def test_until_it_is_decided(bench: Bench, lake: Lake, isolation: None) -> None:
    folder = str(make_suite(lake.settings.data / "suite", 10))
    set_policy(lake.database, '[[require]]\nsuite = "mini"\nminimum = 0.3\nmin_tasks = 10\n')
    run = ("run", folder, "--checkpoint", "new", "--agent", SOLVE)
    mixed = bench(*run, "--until-decided", "--attempts", "2")
    assert (mixed.returncode, "decides how many" in mixed.stderr) == (2, True)
    assert bench(*run, "--max-attempts", "2").returncode == 2
    done = bench(*run, "--until-decided", "--max-attempts", "2", "--json")
    found = told(done)
    assert found["until"]["outcome"] == "PASS"
    assert found["made"] == 10 * found["until"]["look"]
    again = bench(*run, "--until-decided")
    assert "0 attempts made" in again.stderr
    assert "PASS on this suite" in again.stderr
