"""Suites that tests make, small enough to be read at a glance, and what they need to run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from penstock_jobs.benchmarks.sandbox import sandbox
from penstock_jobs.benchmarks.sandbox.sandbox import IsolationImpossible

#: Passes when `answer` holds 42.
CHECK = """
    import sys
    from pathlib import Path
    answer = Path("answer")
    sys.exit(0 if answer.is_file() and answer.read_text().strip() == "42" else 1)
"""
SOLVE = "echo 42 > answer"
PYTHON = sys.executable


def make_suite(
    folder: Path, tasks: Mapping[str, Mapping[str, str]] | int = 1, toml: str = ""
) -> Path:
    """Each task is its files by path, over those of a task that works."""
    if isinstance(tasks, int):
        tasks = {f"task-{number}": {} for number in range(tasks)}
    toml = dedent(toml)
    if "[limits]" not in toml:
        toml += "\n[limits]\nseconds = 20\ncheck_seconds = 20\nmemory_mib = 512\ndisk_mib = 16\n"
    if "[check]" not in toml:
        toml += f"\n[check]\ncommand = [{PYTHON!r}, 'check.py']\n"
    write(folder / "suite.toml", f'name = "mini"\n{toml}')
    for name, files in tasks.items():
        defaults = {
            "task.toml": f'prompt = "Answer the question {name}."\n',
            "tree/question.txt": f"What is it, {name}?\n",
            "check/check.py": CHECK,
        }
        for path, text in {**defaults, **files}.items():
            write(folder / "tasks" / name / path, text)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")


def need_isolation() -> None:
    """For tests that need namespaces."""
    try:
        sandbox.check_isolation()
    except IsolationImpossible as error:
        if os.environ.get("CI"):
            pytest.fail(f"with CI set attempts have to be isolated: {error}")
        pytest.skip(str(error))
