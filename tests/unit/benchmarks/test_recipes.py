"""Recipes from what repositories have, and what the output of their tests counts."""

from textwrap import dedent

import pytest

from penstock_jobs.benchmarks.environments.recipes import (
    Recipe,
    Recipes,
    ci_jobs,
    recipes_of,
    session_command,
)
from penstock_jobs.benchmarks.environments.trial import counts_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import File

PROJECT = """
    [project]
    name = "shop"
    dependencies = ["idna"]
    optional-dependencies = {test = ["hypothesis", "pytest"], docs = ["sphinx"]}
    [dependency-groups]
    tests = [{include-group = "more"}]
    more = ["cloudpickle; platform_python_implementation == 'CPython'"]
"""
WORKFLOW = """
    name: CI
    on: push
    jobs:
      lint:
        runs-on: ubuntu-latest
        steps:
          - run: pip install ruff
          - run: ruff check
      tests:
        strategy:
          matrix:
            python: ["3.11", "3.12"]
        steps:
          - uses: actions/checkout@v5
          - name: Install
            run: |
              sudo apt-get install -y libfoo
              pip install -U .[test]
            env:
              A: b
          - run: echo ${{ matrix.python }}
          - run: uv run --frozen pytest -x tests
          - run: codecov
"""
GITLAB = """
    image: python:3.11
    before_script:
      - pip install poetry
    lint:
      script: [ruff check]
    tests:
      script:
      - poetry install
      - poetry run pytest
"""


def recipes(**files: str) -> Recipes:
    """Files by name, with __ for a dot."""
    named = {name.replace("__", "."): dedent(text).lstrip() for name, text in files.items()}
    return recipes_of([File(name, text.encode()) for name, text in named.items()])


def first(source: str, **files: str) -> Recipe:
    return next(recipe for recipe in recipes(**files).found if recipe.source == source)


def test_the_most_exact_comes_first() -> None:
    found = recipes(Dockerfile="FROM nothing:1\n", uv__lock="", pyproject__toml=PROJECT)
    assert [recipe.source for recipe in found.found] == ["uv.lock", *["pyproject.toml"] * 2]
    assert "nothing:1 is no plain distribution" in found.unfit["Dockerfile"]
    assert [recipe.environment.files for recipe in found.found] == [
        ("uv.lock", "pyproject.toml"),
        ("pyproject.toml",),
        ("*",),
    ]
    assert recipes(README__md="It sells.").found == []
    assert "pyproject.toml" in recipes(pyproject__toml="[project").unfit


def test_python_with_a_lock_file() -> None:
    uv = first("uv.lock", uv__lock="", pyproject__toml=PROJECT).environment.setup
    assert "--no-install-project --group tests --extra test" in uv[-2]
    assert uv[-1].endswith("uninstall --quiet --yes shop")
    poetry = first(
        "poetry.lock",
        poetry__lock="",
        pyproject__toml="""
            [tool.poetry]
            name = "shop"
            [tool.poetry.group.dev.dependencies]
            pytest = "*"
        """,
    ).environment
    assert poetry.setup[-2].endswith("poetry install --no-root --no-interaction --with dev")
    assert "VIRTUAL_ENV=/opt/environment" in poetry.variables


def test_python_without_a_lock_file() -> None:
    listed = {"requirements.txt": "a", "requirements/tests.txt": "b", "docs/requirements.txt": "c"}
    [found] = recipes(**listed).found
    assert found.environment.setup[-1].endswith("-r requirements.txt -r requirements/tests.txt")
    assert found.environment.files == (*[*listed][:2], "pyproject.toml")
    assert "-m pytest" in found.tests
    marked = 'cloudpickle; platform_python_implementation == "CPython"'
    plain, itself = recipes(pyproject__toml=PROJECT).found
    needed = f"'pytest' 'idna' 'hypothesis' '{marked}'"
    assert plain.environment.setup[-2] == f"python -m pip install --quiet {needed}"
    assert itself.environment.setup[-1].endswith("-e '.[test]'")


def test_other_languages() -> None:
    node = first("package-lock.json", package__json="{}", **{"package-lock.json": "{}"})
    assert "npm ci" in node.environment.setup[0]
    assert (node.tests, node.environment.files[1]) == ("CI=1 npm test", "package-lock.json")
    go = first("go.mod", go__mod="module shop", go__sum="")
    assert (go.environment.setup, go.tests) == (("go mod download",), "go test -v ./...")
    assert go.environment.variables[0] == "GOMODCACHE=/opt/environment/go"
    assert first("Cargo.lock", Cargo__lock="", Cargo__toml="").tests.startswith("cargo test")


def test_jobs_of_ci() -> None:
    [recipe] = recipes(**{".github/workflows/ci.yml": WORKFLOW}).found
    _venv, script, _pytest = recipe.environment.setup
    assert script == "apt-get install -y libfoo\npip install -U -e .[test]"
    assert recipe.tests == "pytest -x tests"
    [recipe] = recipes(**{".gitlab-ci.yml": GITLAB}).found
    assert recipe.environment.setup[1:-1] == (
        "python -m pip install --quiet poetry",
        "pip install poetry",
        "poetry install",
    )
    assert recipe.tests == "pytest"
    assert [*ci_jobs([File("a.yml", WORKFLOW.encode())])] == []
    assert session_command(["ls", "python -m pytest a.py", "git commit"]) == "python -m pytest a.py"


def test_a_dockerfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "platform.freedesktop_os_release", lambda: {"ID": "debian", "VERSION_ID": "12"}
    )
    [recipe] = recipes(
        Dockerfile="""
            FROM debian:12
            WORKDIR /shop
            COPY . .
            RUN ./install.sh
        """
    ).found
    assert "./install.sh" in recipe.environment.setup[2]
    assert recipe.environment.setup[-1].endswith('rm -rf /shop && ln -s "$PWD" /shop')


OUTPUTS = {
    "3 failed, 1044 passed, 2 skipped in 9.15s": (1044, 3),
    "\x1b[31m\x1b[1m1 failed\x1b[0m, \x1b[32m2 passed\x1b[0m, 4 errors in 1s": (2, 5),
    "Ran 12 tests in 0.1s\n\nFAILED (failures=1, errors=2)": (9, 3),
    "Ran 12 tests in 0.1s\n\nOK": (12, 0),
    "# tests 5\n# pass 4\n# fail 1\n": (4, 1),
    "  12 passing (9ms)\n  1 failing\n": (12, 1),
    "Tests:       1 failed, 12 passed, 13 total": (12, 1),
    "=== RUN TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n": (1, 1),
    "test result: ok. 7 passed; 0 failed; 0 ignored": (7, 0),
    "..F.sE    [  3%]\n...\n": (6, 2),
    "no tests ran in 0.01s": (0, 0),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_tests_say(output: str) -> None:
    assert counts_of(output) == OUTPUTS[output]
