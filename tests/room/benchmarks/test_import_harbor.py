"""Jobs of Harbor."""

import json
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from tests.support.benchmarks.import_folders import (
    harbor_config,
    harbor_job,
    harbor_trial,
    outcomes,
    read,
    write,
)


def failed(kind: str) -> dict[str, str]:
    return {"exception_type": kind, "exception_message": "why", "occurred_at": "…"}


def test_a_job_by_its_trials(tmp_path: Path) -> None:
    harbor_trial(tmp_path, "a__2", 0.5, started_at="2026-11-21T10:00:00Z")
    harbor_trial(tmp_path, "a__1", 1, started_at="2026-11-21T10:05:00Z")
    harbor_trial(tmp_path, "b__1", 0)
    harbor_job(tmp_path, 3)
    write(tmp_path / "config.json", {"job_name": "…", "agents": []})
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 0.5, ("a", 1): 1, ("b", 0): 0}
    assert not found.problems
    one = found.attempts[0]
    assert (one.prompt_tokens, one.completion_tokens, one.cost_usd) == (100, 7, 0.5)
    assert one.latency_s == 31.5


def test_layouts_of_other_versions(tmp_path: Path) -> None:
    """The reward without a name; trials repeated in the job; a folder of jobs; a trial alone."""
    one = harbor_trial(tmp_path / "jobs" / "j1", "a__1", verifier_result={"reward": 1.0})
    repeated = json.loads(one.read_text())
    harbor_job(tmp_path / "jobs" / "j1", 1, trial_results=[repeated])
    harbor_trial(tmp_path / "jobs" / "j2", "a__9", 0, started_at="2026-11-21T12:00:00Z")
    harbor_job(tmp_path / "jobs" / "j2", 1)
    found = read(tmp_path / "jobs")
    assert outcomes(found) == {("a", 0): 1, ("a", 1): 0}
    assert not found.problems
    assert outcomes(read(one.parent)) == outcomes(read(one)) == {("a", 0): 1}


def test_what_the_model_did_itself_counts_and_what_befell_it_does_not(tmp_path: Path) -> None:
    harbor_trial(tmp_path, "late__1", 1, exception_info=failed("AgentTimeoutError"))
    harbor_trial(tmp_path, "full__1", 0, exception_info=failed("ContextWindowExceededError"))
    harbor_trial(tmp_path, "rate__1", 0, exception_info=failed("RateLimitError"))
    harbor_trial(tmp_path, "odd__1", 1, exception_info=failed("SomethingNew"))
    harbor_trial(tmp_path, "none__1", None)
    harbor_trial(tmp_path, "both__1", None, exception_info=failed("AgentTimeoutError"))
    found = read(tmp_path)
    assert outcomes(found) == {
        ("late", 0): 1,
        ("full", 0): 0,
        ("rate", 0): "RateLimitError: why",
        ("odd", 0): "SomethingNew: why",
        ("none", 0): "it has no reward reward",
        ("both", 0): "it has no reward reward after AgentTimeoutError",
    }
    assert found.problems == {
        "a trial that ended by AgentTimeoutError counts as scored": 1,
        "a trial that ended by AgentTimeoutError has a reward all the same": 1,
        "a trial that ended by ContextWindowExceededError counts as scored": 1,
        "a trial that failed by itself has a reward: it is an error": 2,
    }


def test_steps_are_summed_and_their_failures_count(tmp_path: Path) -> None:
    timing = {"started_at": "2026-11-21T10:00:00Z", "finished_at": "2026-11-21T10:00:10Z"}
    step = {"step_name": "1", "agent_result": {"n_output_tokens": 3}, "agent_execution": timing}
    own = {"agent_result": None, "agent_execution": None}
    harbor_trial(tmp_path, "a__1", 1, step_results=[step, step], **own)
    broken = step | {"exception_info": failed("NetworkConnectionError")}
    harbor_trial(tmp_path, "b__1", 1, step_results=[step, broken], **own)
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 1, ("b", 0): "NetworkConnectionError: why"}
    assert (found.attempts[0].completion_tokens, found.attempts[0].latency_s) == (6, 20)


def test_rewards_and_agents_are_told_apart_by_name(tmp_path: Path) -> None:
    info = {"name": "codex", "version": "1", "model_info": {"name": "x"}}
    harbor_trial(tmp_path, "a__1", {"reward": 1, "style": 0.5})
    harbor_trial(tmp_path, "a__2", 0, agent_info=info)
    with pytest.raises(InvalidInput, match="several: reward, style; name one with --metric"):
        read(tmp_path)
    with pytest.raises(InvalidInput, match="codex x set; terminus x set; name one with --only"):
        read(tmp_path, metric="reward")
    assert outcomes(read(tmp_path, metric="reward", only="codex")) == {("a", 0): 0}
    assert outcomes(read(tmp_path, metric="style", only="terminus")) == {("a", 0): 0.5}


def test_what_left_no_result_is_an_error(tmp_path: Path) -> None:
    long = "a-task-with-a-name-that-is-rather-long"
    harbor_trial(tmp_path, f"{long}__1", 1, task_name=f"org/{long}")
    harbor_config(tmp_path, f"{long[:32]}__2", long)
    harbor_trial(tmp_path, "b__1", 1).write_text("{", encoding="utf-8")
    harbor_config(tmp_path, "b__1", "b")
    passed = [f"{long}__1", f"{long[:32].rstrip('-')}__3"]
    harbor_job(tmp_path, 5, passed=passed, failed=["t" * 32 + "__2"])
    found = read(tmp_path)
    assert outcomes(found) == {
        (f"org/{long}", 0): 1,
        (f"org/{long}", 1): "it left no result",
        (f"org/{long}", 2): "only the summary names it",
        ("b", 0): "its result cannot be read: Input data was truncated",
    }
    assert found.problems["a result is missing, and nothing names its task"] == 1


def test_a_job_that_has_not_ended(tmp_path: Path) -> None:
    harbor_trial(tmp_path, "a__1", 1)
    harbor_config(tmp_path, "b__1", "b")
    harbor_job(tmp_path, 2, finished_at=None)
    with pytest.raises(InvalidInput, match="1 of 2 trials are missing"):
        read(tmp_path)
    assert outcomes(read(tmp_path, unfinished=True)) == {("a", 0): 1, ("b", 0): "it left no result"}


def test_copies_count_once_and_contradictions_not_at_all(tmp_path: Path) -> None:
    harbor_trial(tmp_path / "j1", "a__1", 1, id="one")
    harbor_trial(tmp_path / "j2", "a__1", 1, id="one")
    harbor_trial(tmp_path / "j1", "b__1", 1, id="two")
    harbor_trial(tmp_path / "j2", "b__1", 0, id="two")
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 1, ("b", 0): "two results of it differ"}
    assert found.problems == {
        "a copy, counted once": 1,
        "of two results that differ neither was taken": 1,
    }


@pytest.mark.parametrize("folder", ["agent", "artifacts/j", "verifier", "steps/1/x"])
def test_what_the_agent_wrote_proves_nothing(tmp_path: Path, folder: str) -> None:
    for name, written in (("a__1", True), ("b__1", False)):
        harbor_config(tmp_path, name, name[0])
        harbor_trial(tmp_path / name / folder, f"{name[0]}__forged", 1)
        harbor_job(tmp_path / name / folder, 1)
        if written:
            harbor_trial(tmp_path, name, 0)
    expected = {("a", 0): 0, ("b", 0): "it left no result"}
    assert outcomes(read(tmp_path)) == expected
    (tmp_path / "a__1" / "config.json").unlink()
    assert outcomes(read(tmp_path)) == expected
    assert outcomes(read(tmp_path / "a__1")) == {("a", 0): 0}


def test_tokens_that_not_every_step_says_are_not_known(tmp_path: Path) -> None:
    step = {"step_name": "1", "agent_result": {"n_output_tokens": 3, "n_input_tokens": 5}}
    silent = {"step_name": "2", "agent_result": {"cost_usd": 0.5}}
    own = {"agent_result": None, "agent_execution": None}
    harbor_trial(tmp_path, "a__1", 1, step_results=[step, silent], **own)
    harbor_trial(tmp_path, "b__1", 1, agent_result={"n_input_tokens": 0, "n_output_tokens": 0})
    for attempt in read(tmp_path).attempts:
        assert (attempt.prompt_tokens, attempt.completion_tokens) == (None, None)
