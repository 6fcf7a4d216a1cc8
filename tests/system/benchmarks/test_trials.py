"""Environments that are tried: believed when tests of the tree ran, else left out with reasons."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.settings import load_settings
from penstock_jobs.benchmarks.environments.environment import EnvironmentFailed, make_layer
from penstock_jobs.benchmarks.environments.trial import Trials, try_recipes
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.commands import penstock
from tests.support.suite_factory import make_suite

#: It needs what setup makes, and nothing of a network.
TEST = """\
import os, sys, unittest
sys.path.insert(0, "/opt/environment")

class Answers(unittest.TestCase):
    def test_answer(self):
        import answers
        self.assertEqual(answers.ANSWER, 42)
"""
MADE = "mkdir -p /opt/environment; echo ANSWER = 42 > /opt/environment/answers.py"
CI = f"""\
tests:
  script:
    - {MADE}
    - python3 -m unittest
"""
CODE = "".join(f"def number_{number}():\n    return {number}\n" for number in range(30))


def tree(**files: str) -> list[File]:
    named = {"test_answers.py": TEST, "shop.py": CODE}
    named |= {name.replace("__", "."): text for name, text in files.items()}
    return [File(path, text.encode()) for path, text in named.items()]


@pytest.fixture
def trials(isolation: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return Trials(load_settings(tmp_path / "data", {}))


def test_the_first_one_that_lets_tests_pass_is_believed(
    trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tree(requirements__txt="no-such-package\n", **{".gitlab-ci.yml": CI})
    believed = try_recipes(trials, files)
    assert believed is not None
    assert believed.source == ".gitlab-ci.yml"
    assert "1 tests pass, 0 fail" in capsys.readouterr().err
    layers = trials.settings.data / "environments"
    assert make_layer(believed.environment, believed.files, layers).digest == (
        believed.environment.digest
    )
    assert try_recipes(trials, tree()) is None


def test_none_is_believed(trials: Trials) -> None:
    untouched = CI.replace(MADE, "true")
    copied = CI.replace("- python3", "- cp shop.py /opt/environment\n    - python3")
    ci = {".gitlab-ci.yml": untouched, ".travis.yml": copied}
    files = tree(Dockerfile="FROM scratch\n", requirements__txt="no-such-package\n", **ci)
    with pytest.raises(EnvironmentFailed) as failed:
        try_recipes(trials, files)
    said = str(failed.value)
    assert "Dockerfile: its base scratch is no plain distribution" in said
    assert "requirements.txt: 'python -m pip install" in said
    assert ".gitlab-ci.yml: 'python3 -m unittest': 0 tests pass, 1 fail" in said
    assert ".travis.yml: its setup copies shop.py of the tree" in said


def test_an_agent_is_asked_last(trials: Trials, tmp_path: Path) -> None:
    agent = tmp_path / "agent.sh"
    asks = 'grep -q "0 tests pass, 1 fail" "$PENSTOCK_PROMPT_FILE"'
    agent.write_text(f"{asks} && echo '{MADE}' > environment.sh\n")
    files = tree(**{".gitlab-ci.yml": CI.replace(MADE, "true")})
    believed = try_recipes(replace(trials, agent=f"sh {agent}"), files)
    assert believed is not None
    assert (believed.source, believed.environment.setup) == ("the agent", (MADE,))
    many = replace(trials, agent="yes true | head -11 > environment.sh")
    with pytest.raises(EnvironmentFailed, match="the agent: 11 commands, and not 1 to 10"):
        try_recipes(many, files)


def test_tasks_of_a_suite(trials: Trials, tmp_path: Path) -> None:
    """What is found stands in task.toml with its digest; a task without any is left out."""
    check = "import sys; sys.path.insert(0, '/opt/environment'); import answers\n"
    check += "sys.exit(0 if answers.ANSWER == int(open('answer').read()) else 1)\n"
    files = {f"tree/{file.path}": file.content.decode() for file in tree()}
    files |= {"solution/answer": "42", "tree/answer": "41", "check/check.py": check}
    ci, none = {"tree/.gitlab-ci.yml": CI}, {"tree/.gitlab-ci.yml": CI.replace(MADE, "true")}
    folder = make_suite(tmp_path / "suite", {"one": files | ci, "two": files | none, "three": {}})
    penstock("suites", "prepare", str(folder), "--data", str(trials.settings.data))
    suite = read_suite(folder)
    assert suite.task("one").environment is not None
    assert suite.left_out.keys() == {"two"}
    assert "1 fail" in suite.left_out["two"]
    assert suite.task("three").environment is None
