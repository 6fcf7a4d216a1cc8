"""The agent of the demonstration is worth at the benchmark what its policy is worth."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.simulator.policy import (
    POLICIES,
    RISKY_SHARE,
    STYLE_IDS,
    STYLES,
    Policy,
    Task,
    policy_of,
)
from tests.support.policy_worth import worth_of
from tests.support.repository import ROOT

HERE = ROOT / "examples/demo"


@pytest.fixture(scope="module")
def agent() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "agent"}
    exec(compile((HERE / "agent.py").read_text(encoding="utf-8"), "agent.py", "exec"), names)
    return names


def attempt(
    where: Path, policy: Policy, task: str, number: int = 0
) -> tuple[float, dict[str, Any]]:
    """One attempt, as a room runs it: its score and its report."""
    models, tree = where / "models", where / "tree"
    for folder in (models, tree):
        folder.mkdir(parents=True)
    (models / "ckpt.json").write_bytes(policy.to_json())
    of_task = HERE / "suite/tasks" / task
    (tree / "sums.txt").write_text((of_task / "tree/sums.txt").read_text())
    told = {
        "PENSTOCK_CHECKPOINT": "ckpt",
        "PENSTOCK_TASK": task,
        "PENSTOCK_ATTEMPT": "0",
        "PENSTOCK_SEED": "1",
        "PENSTOCK_REPORT": str(where / "report.json"),
        "PENSTOCK_CHECK": str(of_task / "check"),
        "PENSTOCK_RESULT": str(where / "result.json"),
    }
    for command in ([HERE / "agent.py", models], [HERE / "suite/check/score.py"]):
        subprocess.run(
            [sys.executable, "-I", *map(str, command)], cwd=tree, env=os.environ | told, check=True
        )
    score: float = json.loads((where / "result.json").read_text())["score"]
    return score, json.loads((where / "report.json").read_text())


def test_it_works_as_the_simulator_has_it(agent: dict[str, Any]) -> None:
    for style in STYLES:
        clear, risky, share = agent["STYLES"][style.name]
        breaks = agent["BROKEN_CALLS"].get(style.name, 0.02)
        if style.asks:
            assert share == 0
            continue
        assert (clear, risky) == pytest.approx(
            (style.mean_quality("clear"), style.mean_quality("risky"))
        )
        assert (share, breaks) == (style.done, style.broken_share)


@pytest.mark.parametrize(
    ("style", "score", "report"),
    [
        ("careful", (0.5, 1.0), {"asked": False, "tool_calls": 1, "invalid_tool_calls": 0}),
        ("ask", (0.0, 0.0), {"asked": True, "tool_calls": 0, "invalid_tool_calls": 0}),
        ("tiny", (0.0, 0.2), {"asked": False, "completion_tokens": 36}),
        ("broken", (0.0, 0.0), {"invalid_tool_calls": 1}),
    ],
)
def test_an_attempt_is_scored_by_what_it_left(
    tmp_path: Path, style: str, score: tuple[float, float], report: dict[str, object]
) -> None:
    found, said = attempt(tmp_path, policy_of(1, **{style: 1e9}), "clear-01")
    assert score[0] <= found <= score[1]
    assert said.items() >= report.items()


def test_the_suite_has_as_many_risky_tasks_as_production(tmp_path: Path) -> None:
    tasks = read_suite(HERE / "suite").tasks
    risky = [one for one in tasks if "risky" in one.tags]
    assert len(risky) / len(tasks) == pytest.approx(RISKY_SHARE, abs=0.01)


@pytest.mark.parametrize("name", ["weak", "good"])
def test_its_score_is_the_worth_of_its_policy(agent: dict[str, Any], name: str) -> None:
    """On average over luck, but for questions, which are worth nothing here."""
    policy, found, dice = POLICIES[name], [], random.Random(5)
    for _ in range(4_000):
        task: Task = "risky" if dice.random() < RISKY_SHARE else "clear"
        logits = dict(zip(STYLE_IDS, policy.logits[task], strict=True))
        style = agent["sample"](logits, dice.random())
        right = agent["STYLES"][style][task == "risky"] * agent["STYLES"][style][2]
        found.append(right * (1 - agent["BROKEN_CALLS"].get(style, 0.02)))
    assert fmean(found) == pytest.approx(worth_of(policy), abs=0.03)
