"""Where the demonstration is made, and what it never touches."""

import shlex
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock_jobs.loop import LoopSettings
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.simulator.demo.folders import make_folders
from tests.support.lakes import hand_lake, make_event


def test_each_loop_file_can_be_used(tmp_path: Path) -> None:
    folders = make_folders(tmp_path / "demo")
    loops = [
        load_loop(folders.loops / f"{name}.toml")
        for name in ("learn", "learn-hints", "questions", "careless")
    ]
    assert {one.name for one in loops} == {"demo"}
    assert all(one.bench[0].isolation for one in loops)
    assert load_settings(folders.data).room(LoopSettings).loop_poll_seconds == 0.1


def test_another_demonstration_replaces_the_last(tmp_path: Path) -> None:
    folders = make_folders(tmp_path / "demo")
    for left in (folders.data / "penstock.db", folders.models / "demo-0001.npz"):
        left.write_text("of the last one")
    again = make_folders(tmp_path / "demo")
    assert again == folders
    assert not (folders.data / "penstock.db").exists()
    assert not list(folders.models.iterdir())


@pytest.mark.parametrize("name", ["penstock.db", "notes.txt"])
def test_what_no_demonstration_made_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / name).write_text("mine")
    with pytest.raises(InvalidInput, match="it is not empty, and no demo made it"):
        make_folders(tmp_path / "demo")
    assert (tmp_path / "demo" / name).read_text() == "mine"


def test_a_folder_beside_it_that_is_somebody_s_stays(tmp_path: Path) -> None:
    (tmp_path / "demo-story").mkdir()
    (tmp_path / "demo-story" / "novel.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="demo-story"):
        make_folders(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
    assert (tmp_path / "demo-story" / "novel.txt").read_text() == "mine"


def test_a_lake_on_which_a_service_runs_stays(tmp_path: Path) -> None:
    folders = make_folders(tmp_path / "demo")
    with hand_lake(folders.data) as lake:
        lake.store([make_event("s", 1)])
        with pytest.raises(InvalidInput, match="a service uses it"):
            make_folders(tmp_path / "demo")
        assert (folders.data / "penstock.db").exists()
    assert make_folders(tmp_path / "demo") == folders


def test_the_root_cannot_hold_a_demonstration() -> None:
    with pytest.raises(InvalidInput, match="needs a folder beside it"):
        make_folders(Path("/"))


def test_commands_name_the_python_that_has_all_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/opt/a folder/python3")
    loop = load_loop(make_folders(tmp_path / "my demo").loops / "learn.toml")
    trainer = shlex.split(loop.here(loop.trainer.command or ""))
    assert trainer == [
        "/opt/a folder/python3",
        str(tmp_path / "my demo-story/loop/policy_gradient.py"),
    ]
    agent = shlex.split(loop.here(loop.bench[0].agent))
    assert agent[:3] == ["exec", "/opt/a folder/python3", "-I"]
