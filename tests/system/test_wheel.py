"""What a stranger does first, by the wheel alone: installed in an environment of its own, and run
outside of the checkout."""

import email
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed_wheel import InstalledWheel

_SECONDS_MAX = 600
_SESSION = "sample-reverted"
_SESSIONS = "examples/sessions"


class Stranger:
    """Runs programs of the wheel in a folder of their own, without settings of ours."""

    def __init__(self, wheel: InstalledWheel, folder: Path) -> None:
        self.folder = folder
        self.programs = wheel.programs
        self.environment = wheel.environment() | {"XDG_CONFIG_HOME": str(folder / "config")}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`penstock ARGUMENTS`."""
        return self._run(self.programs / "penstock", *arguments, **environment)

    def done(self, *arguments: str, **environment: str) -> str:
        """What it writes, where it has to go well."""
        ended = self.run(*arguments, **environment)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def python(self, text: str) -> subprocess.CompletedProcess[str]:
        return self._run(self.programs / "python", "-c", text)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """A program that goes on, in a group of its own, as a shell starts it."""
        return subprocess.Popen(
            [self.programs / "penstock", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    @contextmanager
    def served(self, data: str) -> Iterator[dict[str, Any]]:
        """The greeting of a service, and its end."""
        service = self.start("serve", "--json", "--port", "0", "--data", data)
        assert service.stdout is not None
        try:
            yield json.loads(service.stdout.readline())
        finally:
            service.terminate()
            _, messages = service.communicate(timeout=_SECONDS_MAX)
        assert service.returncode == 0, messages
        assert "leaked" not in messages

    def _run(
        self, program: Path, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS_MAX,
        )


@pytest.fixture
def stranger(wheel: InstalledWheel, tmp_path: Path) -> Stranger:
    return Stranger(wheel, tmp_path)


@pytest.fixture(scope="module")
def resident(wheel: InstalledWheel, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """One who has copied the examples and imported their sessions. Tests change nothing there."""
    resident = Stranger(wheel, tmp_path_factory.mktemp("resident"))
    resident.done("examples")
    imported = resident.run("import", _SESSIONS)
    assert imported.returncode == 0, imported.stderr
    return resident


def test_the_package_says_what_it_is_and_under_which_licence(wheel: InstalledWheel) -> None:
    [place] = (wheel.programs.parent / "lib").glob("python*/site-packages/penstock-*.dist-info")
    text = (place / "METADATA").read_text(encoding="utf-8")
    metadata = email.message_from_string(text)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).lstrip().startswith("# Penstock")
    assert not [url for url in metadata.get_all("Project-URL", []) if ".example" in url]
    licence = (place / "licenses" / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence


def test_it_runs_from_its_own_environment(stranger: Stranger) -> None:
    version = stranger.done("--version").split()
    assert version[0] == "penstock"
    text = "import penstock, penstock_jobs; print(penstock.__version__, penstock.__file__)"
    [own, path] = stranger.python(text).stdout.split()
    assert own == version[1]
    assert Path(path).is_relative_to(stranger.programs.parent)
    assert stranger.done("-h") == stranger.done("--help")
    assert "Take events in and answer queries" in stranger.done("-h")


def test_sessions_and_why_they_are_worth_that(resident: Stranger) -> None:
    listed = json.loads(resident.done("sessions", "list", "--json"))["sessions"]
    assert _SESSION in {session["session_id"] for session in listed}
    assert _SESSION in resident.done("sessions", "show", _SESSION)
    assert "edit_persistence" in resident.done("rewards", "show", _SESSION)


def test_a_service_is_asked_from_elsewhere(stranger: Stranger) -> None:
    stranger.done("examples")
    with stranger.served("lake") as service:
        url, key = service["url"], service["key"]
        refused = stranger.run("sessions", "list", "--url", url, PENSTOCK_KEY="pk_admin_wrong")
        assert (refused.returncode, "The key is not valid" in refused.stderr) == (1, True)
        stranger.done("import", _SESSIONS, "--url", url, PENSTOCK_KEY=key)
        stranger.done("login", url, PENSTOCK_KEY=key)
        query = ("query", "select count(distinct session_id) as n from events", "--json")
        [row] = json.loads(stranger.done(*query))
        assert row["n"] > 10
        assert _SESSION in stranger.done("sessions", "show", _SESSION)
        stranger.done("logout")
        assert stranger.run(*query).returncode != 0  # there is no lake here


def test_a_lake_is_backed_up_and_restored(resident: Stranger, tmp_path: Path) -> None:
    backup, restored = str(tmp_path / "lake.tar"), str(tmp_path / "restored")
    resident.done("backup", backup)
    resident.done("restore", backup, "--data", restored)
    query = ("query", "select session_id, count(*) as n from events group by 1 order by 1")
    assert resident.done(*query, "--data", restored) == resident.done(*query)
