"""Small projects with a history to mine: each commit is a message and the files that it changes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

ADD = """
    def add(one, two):
        return one + two
"""
TEST_ADD = """
    import calc

    def test_add():
        assert calc.add(1, 2) == 3
"""
MULTIPLY = f"""{ADD}
    def multiply(one, two):
        return one * two
"""
TEST_MULTIPLY = f"""{TEST_ADD}
    def test_multiply():
        assert calc.multiply(3, 4) == 12
"""
FAST = MULTIPLY.replace("one + two", "sum((one, two))")
DIVIDE = f"""{FAST}
    def divide(one, two):
        return one / two if two else None
"""
TEST_DIVIDE = f"""{TEST_MULTIPLY}
    def test_divide():
        assert calc.divide(1, 0) is None
"""
REQUEST = "Let divide(one, two) give None where two is zero, and the quotient everywhere else."
Files = Mapping[str, str]
COMMITS: list[tuple[str, Files]] = [
    ("The beginning", {"calc.py": ADD, "tests/test_calc.py": TEST_ADD}),
    (
        "Add multiply, which gives the product of two numbers (fixes #3)\n\nReviewed-by: Ann",
        {"calc.py": MULTIPLY, "tests/test_calc.py": TEST_MULTIPLY},
    ),
    ("Say what the module is good for", {"README.md": "It calculates.\n"}),
    (
        "Sums are made by the function that is there for them",
        {"calc.py": FAST, "tests/test_calc.py": TEST_MULTIPLY + "\n"},
    ),
    ("oops", {"calc.py": DIVIDE, "tests/test_calc.py": TEST_DIVIDE}),
]


def git(folder: Path, *arguments: str) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    who = [
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def make_project(folder: Path, commits: list[tuple[str, Files]] | None = None) -> list[str]:
    """The names of its commits, the oldest first."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    names = []
    for message, files in commits or COMMITS:
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(dedent(text).lstrip())
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", message)
        names.append(git(folder, "rev-parse", "HEAD"))
    return names


def program_folder(folder: Path) -> Path:
    """A folder for PATH whose `python` has pytest, without the plugins that are installed here."""
    folder.mkdir()
    program = folder / "python"
    start = f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {sys.executable} "$@"'
    program.write_text(f"#!/bin/sh\n{start}\n")
    program.chmod(0o755)
    return folder
