"""A suite written as Harbor's tasks, and read again."""

import json
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock_jobs.benchmarks.harbor.export import export_tasks
from penstock_jobs.benchmarks.lint import lint_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.suite_factory import make_suite

SOLVED = {"solution/answer": "42\n"}
HALF = """
    import json, os, pathlib, sys
    assert os.environ["PENSTOCK_EDITED"] == str(int(pathlib.Path("answer").exists()))
    score = 1.0 if pathlib.Path("answer").exists() else 0.25
    json.dump({"score": score}, open(os.environ["PENSTOCK_RESULT"], "w"))
"""
TASKS = {
    "half": SOLVED | {"check/check.py": HALF},
    "unfair": {"solution/answer": "41\n"},
    "question": {"task.toml": 'prompt = "Why?"\nexpect = "no_edit"\n'},
    "asks": SOLVED | {"solution.json": '{"asked": true}'},
    "rubric": SOLVED | {"task.toml": 'prompt = "Do."\n[check]\njudged = true\n'},
}
TOML = """
    [network]
    allow = ["packages.example:443"]
    [environment]
    setup = ["echo $KIND > /opt/made", "test -e question.txt"]
    files = ["question.txt"]
    variables = ["KIND=a \\"b\\"", "PATH=/opt/x:$PATH"]
    [check]
    command = ["python3", "check.py"]
"""


def findings(folder: Path, data: Path) -> dict[str, str]:
    with InlineExecutor() as executor:
        found = lint_suite(executor, read_suite(folder), load_settings(data, {}))
    return {one.task: one.problem for one in found}


def test_what_is_written_gives_the_same_verdicts(isolation: None, tmp_path: Path) -> None:
    suite = read_suite(make_suite(tmp_path / "suite", TASKS, TOML))
    left_out = export_tasks(suite, tmp_path / "written")
    whys = {"question": "without an edit", "asks": "the agent's report", "rubric": "asks a model"}
    assert whys.keys() == left_out.keys()
    assert all(why in left_out[name] for name, why in whys.items())
    written = read_suite(tmp_path / "written")
    if not written.tasks:
        pytest.skip(str(written.left_out))
    assert [task.name for task in written.tasks] == ["half", "unfair"]
    task = written.task("half")
    assert task.prompt == suite.task("half").prompt
    assert task.container is not None
    assert task.container.agent.hosts == ("packages.example",)
    why = "its solution must pass its check, but fails"
    assert findings(tmp_path / "written", tmp_path / "data") == {"unfair": why}


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    suite = read_suite(make_suite(tmp_path / "suite", {"one": SOLVED}))
    with pytest.raises(InvalidInput, match="name a new folder"):
        export_tasks(suite, tmp_path)
    export_tasks(suite, tmp_path / "new")
    text = (tmp_path / "new" / "one" / "task.toml").read_text()
    assert json.dumps("mini/one") in text
