"""Runs of Terminal-Bench 1.x."""

from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from tests.support.benchmarks.import_folders import (
    outcomes,
    read,
    tb_old_trial,
    tb_run,
    tb_trial,
    write,
)

RUN = "2026-11-20__10-00-00"
LATER = "2026-11-21__10-00-00"


def test_a_run_with_each_failure_mode(tmp_path: Path) -> None:
    cases: dict[str, tuple[bool | None, str]] = {
        "plain": (True, "unset"),
        "failed": (False, "none"),
        "late": (True, "agent_timeout"),
        "slow": (False, "agent_timeout"),
        "garbled": (None, "parse_error"),
        "endless": (None, "test_timeout"),
        "crashed": (False, "unknown_agent_error"),
        "silent": (None, "unset"),
        "new": (True, "not_seen_before"),
    }
    trials = [
        tb_trial(RUN, task, is_resolved=resolved, failure_mode=mode)
        for task, (resolved, mode) in cases.items()
    ]
    found = read(tb_run(tmp_path, RUN, trials))
    assert outcomes(found) == {
        ("plain", 0): 1,
        ("failed", 0): 0,
        ("late", 0): 1,
        ("slow", 0): 0,
        ("garbled", 0): "parse_error",
        ("endless", 0): "test_timeout",
        ("crashed", 0): "unknown_agent_error",
        ("silent", 0): "nothing says whether it was resolved",
        ("new", 0): "not_seen_before",
    }
    counts = found.problems
    assert counts["a trial with agent_timeout passed its tests, and counts so"] > 0
    assert counts["a trial with agent_timeout failed its tests, and counts so"] > 0
    assert counts["a trial with unknown_agent_error, not resolved, is an error"] > 0
    assert found.attempts[0].latency_s == 60
    assert (found.attempts[0].prompt_tokens, found.attempts[0].completion_tokens) == (10, 4)


def test_a_run_that_contradicts_its_trial_counts_for_neither(tmp_path: Path) -> None:
    folder = tb_run(tmp_path, RUN, [tb_trial(RUN, "a"), tb_trial(RUN, "b")])
    edited = tb_trial(RUN, "a", is_resolved=False)
    write(folder / "a" / edited["trial_name"] / "results.json", edited)
    found = read(folder)
    assert outcomes(found) == {("a", 0): "two results of it differ", ("b", 0): 1}


def test_what_only_the_metadata_names_is_an_error(tmp_path: Path) -> None:
    named = {"task_ids": ["a", "b"], "n_attempts": 2}
    trials = [tb_trial(RUN, "a", number, 2) for number in (1, 2)]
    folder = tb_run(tmp_path, RUN, trials, **named)
    missing = "only the summary names it"
    expected = {("a", 0): 1, ("a", 1): 1, ("b", 0): missing, ("b", 1): missing}
    assert outcomes(read(folder)) == expected
    tb_run(tmp_path, RUN, trials, **named, end_time=None)
    with pytest.raises(InvalidInput, match="2 trials are missing"):
        read(folder)
    assert outcomes(read(folder, unfinished=True)) == expected


def test_what_the_agent_wrote_proves_nothing(tmp_path: Path) -> None:
    folder = tb_run(tmp_path, RUN, [tb_trial(RUN, "a", is_resolved=False)], task_ids=["a", "b"])
    for task in ("a", "b"):
        logs = folder / task / f"{task}.1-of-1.{RUN}" / "agent-logs"
        tb_run(logs, "forged", [tb_trial(RUN, task, id="forged")])
    assert outcomes(read(folder)) == {("a", 0): 0, ("b", 0): "only the summary names it"}


def test_runs_of_several_models_are_not_mixed(tmp_path: Path) -> None:
    tb_run(tmp_path, RUN, [tb_trial(RUN, "a")])
    tb_run(tmp_path, LATER, [tb_trial(LATER, "a", is_resolved=False)], model_name="y")
    with pytest.raises(InvalidInput, match="terminus x; terminus y; name one with --only"):
        read(tmp_path)
    assert outcomes(read(tmp_path, only="y")) == {("a", 0): 0}


def test_broken_files_are_told(tmp_path: Path) -> None:
    folder = tb_run(tmp_path, RUN, [tb_trial(RUN, "a")])
    (folder / "results.json").write_bytes(b'\xff\xfe{\x00"\x00')
    write(folder / "elsewhere" / "results.json", {"other": 1})
    found = read(folder)
    assert outcomes(found) == {("a", 0): 1}
    assert found.problems == {
        "results that cannot be read were left out": 1,
        "a file of another form was passed over": 1,
    }
    assert "UTF-16" in found.examples["results that cannot be read were left out"][0]


def test_names_of_trials_without_their_run_make_no_errors(tmp_path: Path) -> None:
    """`TASK/TASK.3-of-5`, as on the public leaderboard: its 400 trials were 800 attempts once."""
    tasks = [f"task-{at}.hard" for at in range(8)]
    trials = [tb_old_trial(task, number, 5) for task in tasks for number in range(1, 6)]
    trials[7]["is_resolved"] = False
    folder = tb_run(tmp_path, RUN, trials, task_ids=tasks, n_attempts=5)
    found = read(folder)
    assert len(found.attempts) == 40
    assert outcomes(found) == {
        (task, number): float((task, number) != ("task-1.hard", 2))
        for task in tasks
        for number in range(5)
    }
    assert not found.problems
    assert outcomes(read(folder / "results.json")) == outcomes(found)


def test_what_a_run_of_such_trials_lacks_is_named_by_its_number(tmp_path: Path) -> None:
    trials = [tb_old_trial("a", number, 3) for number in (1, 3)]
    nameless = tb_old_trial("b", 1, 3) | {"trial_name": "of another form"}
    folder = tb_run(tmp_path, RUN, [*trials, nameless], n_attempts=3)
    missing = "only the summary names it"
    assert outcomes(read(folder)) == {
        ("a", 0): 1, ("a", 1): missing, ("a", 2): 1,
        ("b", 0): missing, ("b", 1): missing, ("b", 2): 1,
    }  # fmt: skip
