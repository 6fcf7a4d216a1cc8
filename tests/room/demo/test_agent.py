"""The agent of the demonstration writes at the benchmark what the served model says."""

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.simulator.demo.sums import HELD_OUT, TRAFFIC, answered, question
from tests.support.demo_model import DEMO, demo_engine

TASK = DEMO / "suite/tasks/sums-01"


def test_an_attempt_is_scored_by_what_the_model_wrote(tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text((TASK / "tree/sums.txt").read_text())
    log = tmp_path / "calls.jsonl"
    with demo_engine("--name", "ckpt", "--log", str(log)) as url:
        told = {
            "PENSTOCK_MODEL_URL": f"{url}/v1",
            "PENSTOCK_CHECKPOINT": "ckpt",
            "PENSTOCK_SEED": "1",
            "PENSTOCK_REPORT": str(tmp_path / "report.json"),
            "PENSTOCK_CHECK": str(TASK / "check"),
            "PENSTOCK_RESULT": str(tmp_path / "result.json"),
        }
        for command in (DEMO / "agent.py", DEMO / "suite/check/score.py"):
            subprocess.run(
                [sys.executable, "-I", str(command)],
                cwd=tmp_path,
                env=os.environ | told,
                check=True,
            )
    right = (TASK / "check/right.txt").read_text().splitlines()
    written = (tmp_path / "sums.txt").read_text().splitlines()
    report = json.loads((tmp_path / "report.json").read_text())
    score = json.loads((tmp_path / "result.json").read_text())["score"]
    sampled = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(written) == len(sampled) == report["steps"] == 12
    assert report["completion_tokens"] == sum(len(one["tokens"]) for one in sampled)
    assert score == sum(line in written for line in right) / 12
    assert 0 < score < 1
    assert report["asked"] is False


def test_the_suite_asks_what_production_never_does() -> None:
    suite = read_suite(DEMO / "suite")
    asked = {
        line for task in suite.tasks
        for line in (DEMO / "suite/tasks" / task.name / "tree/sums.txt").read_text().splitlines()
    }  # fmt: skip
    assert asked == set(map(question, HELD_OUT))
    assert not asked & set(map(question, TRAFFIC))
    assert len(HELD_OUT) + len(TRAFFIC) == 100


def test_each_check_knows_the_right_answers() -> None:
    right = {answered(one, str(sum(one))) for one in HELD_OUT}
    for check in (DEMO / "suite/tasks").glob("*/check/right.txt"):
        assert set(check.read_text().splitlines()) <= right
