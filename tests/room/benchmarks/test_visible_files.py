"""What a command names is seen in a sandbox, however a shell has to be told of it."""

import os
import shlex
from pathlib import Path

import pytest

from penstock_jobs.benchmarks.sandbox import sandbox_files
from penstock_jobs.benchmarks.sandbox.sandbox_files import homes, named_places, own_programs


@pytest.mark.parametrize("name", ["agent", "an agent", "it's an agent"])
def test_the_folder_of_a_program_that_a_command_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sandbox_files, "_SCRATCH", (f"{tmp_path.resolve()}/",))
    folder = tmp_path.resolve() / name
    folder.mkdir()
    agent = folder / "agent.py"
    agent.touch()
    assert named_places(f"exec python3 {shlex.quote(str(agent))}") == [str(folder)]
    back = f"{shlex.quote(str(folder))}/../{shlex.quote(name)}/agent.py"
    assert str(folder) in named_places(f"python3 {back}")


def test_a_command_that_only_a_shell_understands_is_no_error() -> None:
    assert named_places("echo 'unclosed") == []


def test_of_a_home_that_only_root_enters_programs_of_path_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(tmp_path.resolve())
    inside = [f"{home}/bin", f"{home}/tool/bin", f"{home}/env/shims"]
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", "", "bin", home, *inside]))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    closed = lambda path: home if path.startswith(home) else None  # noqa: E731
    monkeypatch.setattr(sandbox_files, "closed_folder", closed)
    shown = {place for place in own_programs() if place.startswith(home)}
    assert shown == {f"{home}/bin", f"{home}/tool", f"{home}/env"}
    assert named_places(f"{home}/.ssh/key") == []
    (tmp_path / "agent.sh").touch()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "run.py").touch()
    assert named_places(f"{home}/agent.sh") == [f"{home}/agent.sh"]
    assert named_places(f"python {home}/agent/run.py") == [f"{home}/agent"]


def test_the_home_of_a_system_user_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("/", "/usr/sbin", "/bin", "/var"):
        monkeypatch.setenv("HOME", place)
        assert os.path.realpath(place) not in homes()
