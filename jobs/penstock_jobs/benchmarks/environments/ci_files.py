"""Commands that run tests: those that sessions ran, and the jobs of a project's CI files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from penstock_jobs.benchmarks.sandbox.sandbox_files import File, text_of

_TEST_PROGRAM = re.compile(
    r"\b(pytest|python3? -m (?:pytest|unittest)|tox|nox|go test|cargo test|npm (?:run )?test|"
    r"yarn (?:run )?test|pnpm (?:run )?test|make (?:test|check)|mvn .*test|gradlew? .*test|"
    r"ctest|rake test|rspec|phpunit|dotnet test)\b"
)
#: What starts it in an environment that is there already.
_RUNNER = re.compile(r"(?:(?:uv|poetry|pdm|hatch) run (?:-\S+ )*)?")
_STARTED = re.compile(rf"{_RUNNER.pattern}(?:coverage run (?:-\S+ )*-m )?{_TEST_PROGRAM.pattern}")
_CI_FILE = re.compile(
    r"\.github/workflows/.*|\.circleci/.*|\.gitlab-ci\.yml|\.travis\.yml|azure-pipelines\.yml"
)
#: What parts jobs: their steps in one format, keys without an indentation in others.
_STEPS, _KEYS = re.compile(r"(?m)^ *steps:.*$"), re.compile(r"(?m)^(?=[\w.-]+:)")
_SCRIPT = re.compile(r"(\s*(?:- )?)(?:run|(?:before_)?script|install|command):\s*(.*)")
_BLOCK = re.compile(r"[|>]?[-+]?(\s+#.*)?")
_UNKNOWN = "${{"


class CiJob(NamedTuple):
    """A job of CI that runs tests, and the scripts before them."""

    source: str
    setup: tuple[str, ...]
    command: str


def session_command(lines: Iterable[str]) -> str | None:
    """Find the last command of tests among commands that a session ran."""
    found = [line.strip() for line in lines if "\n" not in line and _TEST_PROGRAM.search(line)]
    return found[-1] if found else None


def ci_jobs(tree: Iterable[File]) -> Iterator[CiJob]:
    """Find the jobs of CI files that run tests. Scripts with values of CI itself are left out."""
    for file in tree:
        if _CI_FILE.fullmatch(file.path):
            shared: tuple[str, ...] = ()
            parted = _STEPS if "/workflows/" in file.path else _KEYS
            for part in parted.split(text_of(file)):
                setup, command = _job(part)
                if command is not None:
                    yield CiJob(file.path, (*shared, *setup), command)
                elif part.startswith(("before_script:", "default:")):
                    shared = setup


def _job(part: str) -> tuple[tuple[str, ...], str | None]:
    """Read the scripts of a job before its first command of tests, and that command."""
    setup: list[str] = []
    for script in _scripts(part.splitlines()):
        if _UNKNOWN in script:
            continue
        lines = script.splitlines()
        before = [*takewhile(lambda line: not _STARTED.match(line), lines)]
        setup += ["\n".join(before)] if any(before) else []
        if len(before) < len(lines):
            return tuple(setup), _RUNNER.sub("", lines[len(before)], count=1)
    return tuple(setup), None


def _scripts(lines: Sequence[str]) -> Iterator[str]:
    """Read the scripts of a CI file, as its indentation tells."""
    for number, line in enumerate(lines):
        if (found := _SCRIPT.fullmatch(line)) is None:
            continue
        said = found[2]
        if _BLOCK.fullmatch(said):
            rest = lines[number + 1 :]
            below = takewhile(partial(_is_below, len(found[1]), items=not said), rest)
            yield "\n".join(re.sub(r"^\s*(- )?", "", each) for each in below)
        else:
            yield said.strip("\"'")


def _is_below(column: int, line: str, *, items: bool) -> bool:
    """Whether a line belongs to the block, or to the list, of a key at this column."""
    if items:
        return not line[:column].strip() and line[column:].lstrip().startswith("- ")
    return not line[: column + 1].strip()
