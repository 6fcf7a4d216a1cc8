"""A suite that measures nothing is refused by name."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.settings import load_settings
from penstock_jobs.benchmarks.lint import lint_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.suite_factory import CHECK, make_suite

NO_EDIT = 'prompt = "Why?"\nexpect = "no_edit"\n'
#: Passes when the agent asked; so does a solution of which the report says so.
ASKED = """
    import json, os
    raise SystemExit(0 if json.load(open(os.environ["PENSTOCK_REPORT"])).get("asked") else 1)
"""


@pytest.fixture
def problems_of(isolation: None, tmp_path: Path) -> object:
    def found(tasks: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
        suite = read_suite(make_suite(tmp_path / "s", tasks))
        problems: dict[str, list[str]] = {}
        with InlineExecutor() as executor:
            for one in lint_suite(executor, suite, load_settings(tmp_path, {})):
                problems.setdefault(one.task, []).append(one.problem)
        return problems

    return found


def test_suites_that_are_right(problems_of: object) -> None:
    tasks = {
        "plain": {},
        "solved": {"solution/answer": "42\n"},
        "question": {"task.toml": NO_EDIT, "check/check.py": "raise SystemExit(0)"},
        "ask": {
            "task.toml": 'prompt = "Do that."\nexpect = "any"',
            "check/check.py": ASKED,
            "solution.json": '{"asked": true}',
        },
        "half": {"check/check.py": "open(__import__('os').environ['PENSTOCK_RESULT'], 'w')"
                 ".write('{\"score\": 0.5}')"},
    }  # fmt: skip
    assert problems_of(tasks) == {}  # type: ignore[operator]


def test_suites_that_measure_nothing(problems_of: object) -> None:
    told = "Make sure that answer.read_text().strip() == 42 holds in the end, please."
    tasks = {
        "always": {"check/check.py": "raise SystemExit(0)"},
        "broken": {"check/check.py": "import no_such_module_anywhere, os; os._exit(3)"},
        "crashes": {"check/check.py": "import os; os._exit(3)"},
        "dice": {
            "check/check.py": "import time, os; open(os.environ['PENSTOCK_RESULT'], 'w')"
            ".write('{\"score\": 0.%d}' % (time.time_ns() // 100 % 10**9))"
        },
        "unsolved": {"solution/answer": "41\n"},
        "leaks": {"tree/tests/hidden.py": CHECK.replace("\n    ", "\n").strip() + "\n",
                  "check/hidden.py": CHECK.replace("\n    ", "\n").strip() + "\n"},
        "tells": {"task.toml": f'prompt = "{told}"', "check/check.py": f"# {told}\nassert 0"},
        "question": {"task.toml": NO_EDIT, "check/check.py": "raise SystemExit(1)"},
        "fine": {},
    }  # fmt: skip
    found = problems_of(tasks)  # type: ignore[operator]
    assert set(found) == set(tasks) - {"fine", "broken"}
    assert found["always"] == ["an untouched tree must fail its check, but passes"]
    assert "gets no score" in found["crashes"][0]
    assert any("one tree in two ways" in one for one in found["dice"])
    assert found["unsolved"] == ["its solution must pass its check, but fails"]
    assert found["leaks"] == ["tests/hidden.py in its tree is a file of its check"]
    assert "contains a line of its check" in found["tells"][0]
    assert found["question"] == ["nothing is to be edited, but an untouched tree fails"]
