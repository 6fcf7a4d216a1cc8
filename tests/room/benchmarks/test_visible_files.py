"""What a command names is seen in a sandbox, however a shell has to be told of it."""

import os
import shlex
from pathlib import Path

import pytest

from penstock_jobs.benchmarks.sandbox import visible_files
from penstock_jobs.benchmarks.sandbox.visible_files import homes, named_places, own_programs


@pytest.mark.parametrize("name", ["agent", "an agent", "it's an agent"])
def test_the_folder_of_a_program_that_a_command_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(visible_files, "_SCRATCH", (f"{tmp_path.resolve()}/",))
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
    monkeypatch.setattr(
        visible_files, "_closed_to_nobody", lambda path: home if path.startswith(home) else None
    )
    shown = {place for place in own_programs() if place.startswith(home)}
    assert shown == {f"{home}/bin", f"{home}/tool", f"{home}/env"}
    assert named_places(f"{home}/.ssh/key") == []
    (tmp_path / "agent.sh").touch()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "run.py").touch()
    assert named_places(f"{home}/agent.sh") == [f"{home}/agent.sh"]
    assert named_places(f"python {home}/agent/run.py") == [f"{home}/agent"]


def test_of_ones_own_home_only_what_a_command_needs_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.resolve()
    for folder in (".ssh", ".venv/bin", "code/bin", ".local/bin", ".local/share/tool/bin"):
        (home / folder).mkdir(parents=True)
    for file in (".ssh/key", ".netrc", "code/agent.py", "code/bin/run", ".local/share/tool/bin/t"):
        (home / file).touch()
    (home / ".venv" / "pyvenv.cfg").touch()
    (home / ".venv" / "bin" / "python").symlink_to("/usr/bin/env")
    (home / ".local" / "bin" / "t").symlink_to("../share/tool/bin/t")
    monkeypatch.setenv("HOME", str(home))
    path = [f"{home}/.local/bin", f"{home}/.venv/bin", f"{home}/code/bin", "/usr/bin"]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    assert str(home) in homes()

    shown = {place.removeprefix(f"{home}/") for place in own_programs() if str(home) in place}
    assert shown == {".local/bin", ".local/share/tool", ".venv", "code"}
    for command, places in {
        f"cat {home}/.ssh/key {home}/.netrc": {".ssh/key", ".netrc"},
        f"cd {home} && ls {home}/": set(),
        f"{home}/.venv/bin/python -m agent": {".venv"},
        f"python {home}/code/agent.py": {"code"},
        f"{home}/.local/bin/t": {".local/bin", ".local/share/tool"},
    }.items():
        assert {place.removeprefix(f"{home}/") for place in named_places(command)} == places


def test_the_home_of_a_system_user_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("/", "/usr/sbin", "/bin", "/var"):
        monkeypatch.setenv("HOME", place)
        assert os.path.realpath(place) not in homes()
