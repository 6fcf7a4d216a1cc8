"""Mining that is killed goes on where it was, and what is exported measures agents."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.endpoint import Caller
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import attempts_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.harbor.export import export_tasks
from penstock_jobs.benchmarks.lint import lint_suite
from penstock_jobs.benchmarks.mine.mining import MiningOptions, export_suite, mine
from penstock_jobs.benchmarks.mine.proposals import (
    JudgementRequest,
    Proposal,
    files_of,
    judge,
    proposals_of,
)
from penstock_jobs.benchmarks.run import RunOptions, run_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.room.benchmarks.conftest import TENANT
from tests.support.benchmarks.mined_projects import make_project, program_folder
from tests.support.waiting import eventually


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = program_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    make_project(tmp_path / "calc")
    return tmp_path / "calc"


def test_killed_at_any_point(lake: Lake, project: Path, tmp_path: Path) -> None:
    options = MiningOptions(project, "calc")
    code = f"""
from pathlib import Path
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.lake import open_lake
from penstock_jobs.benchmarks.mine.mining import MiningOptions, mine
with open_lake({str(lake.settings.data)!r}) as lake, InlineExecutor() as executor:
    options = MiningOptions(Path({str(project)!r}), "calc")
    mine(lake, executor, options, tenant={TENANT!r})
"""

    def kept() -> list[Proposal]:
        return proposals_of(lake.database, TENANT, "calc")

    for count in (1, 2, 3):
        with subprocess.Popen([sys.executable, "-c", code]) as child:
            eventually(lambda: len(kept()) >= count)  # noqa: B023
            child.send_signal(signal.SIGKILL)
    before = len(kept())
    with InlineExecutor() as executor:
        report = mine(lake, executor, options, tenant=TENANT)
    assert report.known == before
    assert report.proposed + report.left_out.total() == 4 - before
    assert len({each.facts["settled"] for each in kept()}) == len(kept()) == 4
    [task] = [each.task for each in kept() if each.state == "proposed"]
    assert "2 of 2 tests pass" in files_of(lake, TENANT, "calc", task).after

    judge(lake, Caller(TENANT, "ann"), JudgementRequest(suite="calc", task=task, take=True))
    suite = export_suite(lake, TENANT, "calc", tmp_path / "suite")
    solution = suite.folder / "tasks" / task / "solution" / "calc.py"
    for checkpoint, agent, score in (("new", f"cp {solution} calc.py", 1.0), ("old", "true", 0.0)):
        run = RunOptions(agent=agent, isolated=False)
        with InlineExecutor() as executor:
            run_suite(lake, executor, suite, checkpoint, run, tenant=TENANT)
        scope = AttemptScope(TENANT, "calc", suite.version, checkpoint)
        assert [each.result.score for each in attempts_of(lake.database, scope)] == [score]


GREETINGS: list[tuple[str, Mapping[str, str]]] = [
    (
        "The beginning",
        {
            "greet.sh": "echo hello\n",
            "tests/expected": "hello\n",
            "Makefile": "check:\n\tsh greet.sh | cmp - tests/expected\n",
            ".github/workflows/ci.yml": "jobs:\n- run: make check\n",
        },
    ),
    (
        "Greet the whole world, by this name after the comma, where nobody is named",
        {"greet.sh": "echo hello, world\n", "tests/expected": "hello, world\n"},
    ),
]


def test_a_mined_suite_as_tasks_of_harbor(isolation: None, lake: Lake, tmp_path: Path) -> None:
    """Written, read again and linted: the solution passes and an untouched container fails."""
    make_project(tmp_path / "greet", GREETINGS)
    with InlineExecutor() as executor:
        report = mine(lake, executor, MiningOptions(tmp_path / "greet", "greet"), tenant=TENANT)
        assert (report.proposed, dict(report.left_out)) == (1, {})
        (each,) = proposals_of(lake.database, TENANT, "greet")
        judge(
            lake, Caller(TENANT, "ann"), JudgementRequest(suite="greet", task=each.task, take=True)
        )
        suite = export_suite(lake, TENANT, "greet", tmp_path / "suite")
        assert export_tasks(suite, tmp_path / "harbor") == {}
        written = read_suite(tmp_path / "harbor")
        if not written.tasks:
            pytest.skip(str(written.left_out))
        assert [task.name for task in written.tasks] == [each.task]
        assert lint_suite(executor, written, lake.settings) == []
