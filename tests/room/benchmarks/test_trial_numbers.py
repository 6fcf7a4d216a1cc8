"""A trial is counted once, whatever number an import gives it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt
from penstock.registry.checkpoints.checkpoint import AttemptConflict
from penstock_jobs.benchmarks.result_import import number_attempts
from tests.support.benchmarks.import_folders import harbor_trial
from tests.support.result_registry import Registry

AGAIN = "a trial that is known under another number was not counted again"


def told(report: Any) -> dict[str, int]:
    return {problem.kind: problem.count for problem in report.problems}


def lines(path: Path, *values: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in values), encoding="utf-8")
    return path


def line(task: str, attempt: int, score: float = 1.0, **facts: Any) -> dict[str, Any]:
    return {"task": task, "attempt": attempt, "score": score} | facts


def test_the_same_run_under_other_numbers_adds_nothing(registry: Registry, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    for task in ("a", "b"):
        for number in (1, 2):
            harbor_trial(folder, f"{task}__{number}", id=f"id-{task}-{number}")
    assert registry.take(folder).new == 4
    again = registry.take(folder, first_attempt=2)
    assert (again.new, again.attempts, told(again)[AGAIN]) == (0, 4, 4)
    assert len(registry.kept()) == 4
    assert len(registry.runs()) == 1


def test_of_exports_that_overlap_each_trial_counts_once(registry: Registry, tmp_path: Path) -> None:
    """The second holds two trials of the first, and two new ones."""
    first, second = tmp_path / "1", tmp_path / "2"
    for number in range(6):
        moment = f"2026-11-21T10:0{number}:00Z"
        facts = {"id": f"id-{number}", "started_at": moment}
        for job in (first, second):
            if (number < 4) if job == first else (number >= 2):
                harbor_trial(job, f"a__{number}", number / 10, **facts)
    assert registry.take(first).new == 4
    report = registry.take(second)
    assert (report.new, told(report)[AGAIN]) == (2, 2)
    assert registry.kept() == {("a", n): n / 10 or None for n in range(6)}
    assert registry.take(second, first_attempt=9).new == 0


def test_a_score_takes_the_place_of_its_own_error(registry: Registry, tmp_path: Path) -> None:
    harbor_trial(tmp_path / "1", "a__0", 1, id="x", started_at="2026-11-21T10:00:00Z")
    harbor_trial(tmp_path / "1", "a__1", None, id="y", started_at="2026-11-21T11:00:00Z")
    registry.take(tmp_path / "1")
    harbor_trial(tmp_path / "2", "a__1", 0.5, id="y")
    assert registry.take(tmp_path / "2", first_attempt=7).new == 1
    assert registry.kept() == {("a", 0): 1, ("a", 1): 0.5}


def test_another_trial_with_the_same_result_is_no_copy(registry: Registry, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for job in (first, second):
        harbor_trial(job, "a__1", id=f"id-{job.name}")
    assert registry.take(first).new == 1
    with pytest.raises(AttemptConflict, match="another result or trial"):
        registry.take(second)
    assert registry.take(second, first_attempt=1).new == 1


def test_lines_are_known_by_their_ids(registry: Registry, tmp_path: Path) -> None:
    first = lines(tmp_path / "1.jsonl", *(line("a", n, trial=f"t{n}") for n in range(3)))
    registry.take(first)
    second = lines(tmp_path / "2.jsonl", *(line("a", n, trial=f"t{n + 2}") for n in range(3)))
    assert registry.take(second).new == 2
    assert sorted(registry.kept()) == [("a", n) for n in range(5)]
    odd = lines(tmp_path / "3.jsonl", line("a", 9, trial=[1]), line("a", 8, trial=8))
    assert told(registry.take(odd))["a line that cannot be read was left out"] == 1


def test_lines_are_known_by_what_no_two_trials_share(registry: Registry, tmp_path: Path) -> None:
    facts = [{"latency_s": 31.5 + n, "completion_tokens": 800 + n} for n in range(3)]
    registry.take(lines(tmp_path / "1.jsonl", *(line("a", n, **facts[n]) for n in range(3))))
    moved = [line("a", 0, **facts[2]), line("a", 1, 0.0, latency_s=8.25, completion_tokens=5)]
    report = registry.take(lines(tmp_path / "2.jsonl", *moved), first_attempt=3)
    assert (report.new, told(report)[AGAIN]) == (1, 1)
    assert sorted(registry.kept()) == [("a", n) for n in range(4)]


def test_scores_alone_tell_a_whole_run_and_no_single_trial(
    registry: Registry, tmp_path: Path
) -> None:
    scores = [1.0, 0.0, 1.0, 1.0]
    path = lines(tmp_path / "1.jsonl", *(line(f"t-{n}", 0, each) for n, each in enumerate(scores)))
    first = registry.take(path)
    shutil.copy(path, tmp_path / "2.jsonl")
    report = registry.take(tmp_path / "2.jsonl", first_attempt=1)
    assert report.new == 0
    [kind] = told(report)
    assert kind.startswith(f"a result of the run {first.run} was not counted again")
    assert "say so by a `trial`" in kind
    scores[1] = 1.0
    lines(path, *(line(f"t-{n}", 0, each) for n, each in enumerate(scores)))
    assert registry.take(path, first_attempt=1).new == 4


def test_what_is_known_under_its_number_is_not_told() -> None:
    known = [RecordedAttempt(Attempt(task="a", attempt=0, score=1.0, trial="x"), "r", 1)]
    numbered = number_attempts([known[0].result], known, 0)
    assert (numbered.attempts, numbered.renamed) == ({("a", 0): known[0].result}, [])
