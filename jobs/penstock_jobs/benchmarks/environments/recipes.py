"""Recipes: the ways to make a tree runnable that its files tell, the most exact first."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.environments.environment import PACKAGES, Environment
from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade, read_dockerfile, stand_in
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, text_of

COMMANDS_MAX = 10
_PLACE = "/opt/environment"
_PIP = "python -m pip install --quiet"
_VENV = f"python3 -m venv {_PLACE}"
#: Names of groups and extras that tests need.
_GROUPS = ("test", "tests", "testing", "dev")
_REQUIREMENTS = ("requirements.txt", "*-requirements.txt", "requirements-*.txt", "requirements/*")
#: Versions are told by tags, which no tree has.
_PYTHON = (
    f"PATH={_PLACE}/bin:/node_modules/.bin:$PATH",
    f"VIRTUAL_ENV={_PLACE}",
    f"UV_PROJECT_ENVIRONMENT={_PLACE}",
    "SETUPTOOLS_SCM_PRETEND_VERSION=1",
)
#: Two minutes tell enough. Cut off, it has still said what passed.
_PYTEST = (
    'PYTHONPATH="$PWD/src:$PWD" timeout -s INT -k 20 120 python -m pytest -q -o addopts= '
    "-p no:cacheprovider --continue-on-collection-errors"
)
#: Checks of mined tasks ask pytest.
_WITH_PYTEST = f"python -m pytest --version || {_PIP} pytest || true"
_POETRY = "python3 -m venv /opt/poetry && /opt/poetry/bin/pip install --quiet poetry"
_NODE = (
    f"mkdir -p {_PLACE} && cp package*.json {_PLACE} && cd {_PLACE}"
    f" && npm ci --no-audit --no-fund && ln -s {_PLACE}/node_modules /node_modules"
)
#: By the file at the root that asks for it: how tests are run.
_TESTS = {"go.mod": "go test -v ./...", "Cargo.toml": "cargo test --offline --no-fail-fast"}
_TOOLS = ("uv", "poetry", "pdm", "hatch")
#: The project itself is the tree: a copy would hide what is edited, and show later answers.
_ITSELF = re.compile(r"(pip3? install(?: -\S+)*) (?!-e)(['\"]?\.(?:\[[^\]]*\])?['\"]?)(?=\s|$)")
_SUDO = re.compile(r"(?m)(^|&& |; )sudo (-\w+ )*")


@dataclass(frozen=True)
class Recipe:
    #: Who tells it: a file, or an agent.
    source: str
    environment: Environment
    #: The command that runs the repository's tests.
    tests: str


@dataclass
class Recipes:
    """The recipes of a tree, and why the rest of what it tells cannot be tried."""

    #: The command for its tests, as CI says it, or the usual one of its language.
    tests: str
    found: list[Recipe] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)


def recipes_of(tree: Sequence[File]) -> Recipes:
    files = {file.path: file for file in tree}
    tests = _tests_of(files)
    recipes = Recipes(tests)
    try:
        found = _of_files(files, tests)
        recipes.found += [recipe for recipe in found if recipe.source in files]
    except InvalidInput as error:
        recipes.unfit["pyproject.toml"] = str(error)
    for job in ci_jobs(tree):
        tools = [tool for tool in _TOOLS if re.search(rf"\b{tool} ", " ".join(job.setup))]
        setup = [_VENV, *([f"{_PIP} {' '.join(tools)}"] if tools else ())]
        setup += [_ITSELF.sub(r"\1 -e \2", _SUDO.sub(r"\1", script)) for script in job.setup]
        if "tox" not in job.command and "nox" not in job.command:
            recipes.tests = job.command
        recipes.found.append(recipe_of(job.source, recipes.tests, (*setup, _WITH_PYTEST)))
    if "Dockerfile" in files:
        try:
            recipes.found.append(_of_dockerfile(text_of(files["Dockerfile"]), tests))
        except CannotBeMade as error:
            recipes.unfit["Dockerfile"] = str(error.facts["why"])
    told = recipes.found  # several jobs of CI may tell the same
    recipes.found = [each for number, each in enumerate(told) if each not in told[:number]]
    return recipes


def _tests_of(files: Mapping[str, File]) -> str:
    """The usual command for the language of a tree."""
    if "package.json" in files and not any(path.endswith(".py") for path in files):
        return "CI=1 npm test"
    return next((command for name, command in _TESTS.items() if name in files), _PYTEST)


def recipe_of(
    source: str,
    tests: str,
    setup: Sequence[str],
    files: tuple[str, ...] = ("*",),
    variables: tuple[str, ...] = _PYTHON,
) -> Recipe:
    return Recipe(source, Environment(tuple(setup), files, (PACKAGES,), variables), tests)


def _of_files(files: Mapping[str, File], tests: str) -> Iterator[Recipe]:
    """Make the recipes of lock files and projects, also of those that are not there."""
    document: dict[str, Any] = {}
    if "pyproject.toml" in files:
        document = toml_document.parse_toml(text_of(files["pyproject.toml"]), "pyproject.toml")
    project, groups = document.get("project", {}), document.get("dependency-groups", {})
    extras = project.get("optional-dependencies", {})
    poetry = document.get("tool", {}).get("poetry", {})
    name = project.get("name") or poetry.get("name")
    # Dependencies may bring the project's own release.
    away = [f"python -m pip uninstall --quiet --yes {name}"] if name else []

    def python(source: str, *setup: str, names: Sequence[str] = ()) -> Recipe:
        commands = _VENV, f"{_PIP} pytest", *setup, *away
        read = dict.fromkeys([*(names or [source]), "pyproject.toml"])
        return recipe_of(source, tests, commands, tuple(read))

    chosen = [f"--group {name}" for name in _GROUPS if name in groups]
    chosen += [f"--extra {name}" for name in _GROUPS if name in extras]
    sync = f"uv sync --frozen --inexact --no-install-project {' '.join(chosen)}"
    yield python("uv.lock", f"{_PIP} uv", sync)
    wanted = ",".join(name for name in _GROUPS if name in poetry.get("group", {}))
    install = "poetry install --no-root --no-interaction" + (f" --with {wanted}" if wanted else "")
    yield python("poetry.lock", _POETRY, f"/opt/poetry/bin/{install}")
    needed = f"{_PIP} {_needed(project, groups, extras)}"
    listed = [
        path
        for path in files
        if path.endswith(".txt") and any(fnmatchcase(path, each) for each in _REQUIREMENTS)
    ]
    if listed:
        options = " ".join(f"-r {path}" for path in listed)
        yield python(listed[0], needed + options, names=listed)
    yield python("pyproject.toml", needed)
    extra = next((f"[{each}]" for each in _GROUPS if each in extras), "")
    for source in ("pyproject.toml", "setup.py"):
        yield recipe_of(source, tests, (_VENV, needed, f"{_PIP} -e '.{extra}'"))
    node, go = ("package.json", "package-lock.json"), ("go.mod", "go.sum")
    yield recipe_of(node[1], tests, [_NODE], node)
    yield recipe_of(go[0], tests, ["go mod download"], go, (f"GOMODCACHE={_PLACE}/go",))
    yield recipe_of(
        "Cargo.lock", tests, ["cargo fetch --locked"], variables=(f"CARGO_HOME={_PLACE}/cargo",)
    )


def _needed(
    project: Mapping[str, Any], groups: Mapping[str, Any], extras: Mapping[str, Any]
) -> str:
    """Read what the project and its tests need from pyproject.toml, quoted for `sh`."""
    waiting: list[Any] = ["pytest", *project.get("dependencies", [])]
    waiting += [{"include-group": name} for name in _GROUPS[:-1]]
    needed: list[str] = []
    for each in waiting:  # it grows
        if isinstance(each, str):
            needed.append("'" + each.replace("'", '"') + "'")
        else:
            name = each["include-group"]
            waiting += [*groups.get(name, []), *extras.get(name, [])]
    return " ".join(dict.fromkeys(needed))


def _of_dockerfile(text: str, tests: str) -> Recipe:
    """The parts of an image. What it copied of the tree becomes the tree itself."""
    build = read_dockerfile(text)
    commands, variables = stand_in(build.image)
    place, link = build.workdir, []
    if place != "/":
        kept = f"if [ -d {place}/node_modules ]; then mv {place}/node_modules /; fi"
        link = [f'{kept}; rm -rf {place} && ln -s "$PWD" {place}']
    given = {"SETUPTOOLS_SCM_PRETEND_VERSION": "1"} | variables | build.variables
    setup = (*commands, *build.commands, _WITH_PYTEST, *link)
    told = tuple(f"{name}={value}" for name, value in given.items())
    return recipe_of("Dockerfile", tests, setup, variables=told)


# Jobs of CI files, and commands of tests

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
