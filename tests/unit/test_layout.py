"""The house itself: what may lie where, what is shipped, what is locked."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from penstock.core.metrics import CATALOGUE
from tests.support.repository import ROOT

PACKAGES = ("platform/penstock", "jobs/penstock_jobs")
ROOMS = (*PACKAGES, "migrations", "tests", "bench", "examples")
SHIPPED = {".css", ".html", ".jinja", ".js", ".json", ".jsonl", ".mako", ".md", ".npz", ".py",
           ".sql", ".toml", ".typed"}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python at the repository root, as a developer would start it."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("room", ["platform", "jobs", "migrations", "tests"])
def test_source_roots_are_no_packages(room: str) -> None:
    """As a package, platform/ would shadow the standard library's module."""
    assert not (ROOT / room / "__init__.py").exists()


def test_no_package_below_tests() -> None:
    """One below tests/ would give two tests of the same name the same module."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("how", [["-c"], ["-m", "timeit", "-n", "1", "-r", "1"]], ids=" ".join)
def test_platform_is_the_standard_library_s(how: list[str]) -> None:
    """Both ways put the repository root first on the path; bare pytest would not notice."""
    done = run(*how, "import platform; platform.system()")
    assert done.returncode == 0, done.stderr


def test_every_python_file_lives_in_a_room() -> None:
    """A file outside belongs to no layer, no type check and no wheel. What `make demo` and
    `penstock` leave where they are called is not the project's."""
    made = (".", "penstock-demo", "penstock-data")
    visible = [entry for entry in ROOT.iterdir() if not entry.name.startswith(made)]
    files = [file for entry in visible for file in (entry, *entry.rglob("*.py"))]
    code = [file for file in files if file.suffix == ".py"]
    assert [file for file in code if not any(file.is_relative_to(ROOT / r) for r in ROOMS)] == []


def test_wheel_ships_all_of_both_packages(tmp_path: Path) -> None:
    """Code, SQL, pages, type markers and migrations reach whoever installs the wheel."""
    built = run("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())

    homes = {package: Path(package).name for package in PACKAGES}
    homes["migrations"] = "penstock/_migrations"
    expected = {
        f"{home}/{file.relative_to(ROOT / source).as_posix()}"
        for source, home in homes.items()
        for file in (ROOT / source).rglob("*")
        if file.suffix in SHIPPED
    }
    assert {"penstock/py.typed", "penstock_jobs/py.typed", "penstock/_migrations/env.py"} <= shipped
    assert expected - shipped == set()
    assert [name for name in shipped if "__pycache__" in name] == []


def test_lock_holds_every_dependency_and_no_host() -> None:
    """`make lock` was run after the last change, and installs ask whatever index is configured."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wanted}
    lock = (ROOT / "requirements.lock").read_text()
    assert names - set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)) == set()
    assert "://" not in lock


def test_each_metric_is_in_the_catalogue_and_is_used_as_its_kind() -> None:
    kinds = {"add": Counter, "set": Gauge, "observe": Histogram}
    pattern = re.compile(r'metrics\.(add|set|observe)\(\s*"(\w+)"')
    texts = [path.read_text() for room in PACKAGES for path in (ROOT / room).rglob("*.py")]
    used = {name: kinds[verb] for text in texts for verb, name in pattern.findall(text)}
    assert used == {name: metric.kind for name, metric in CATALOGUE.items()}
