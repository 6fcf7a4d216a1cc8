"""`penstock observe`: what it due at and when, what it tells, and what it does not."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.lake.client import LocalClient, open_client
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.sessions.observer import Observer
from penstock_jobs.sessions.watching import FILE_BYTES_MAX, WorkTree, kept_memory, windows_of
from tests.support.commands import penstock
from tests.support.manual_clock import ManualClock

Row = dict[str, Any]
#: Of the default definition; what a file was at once, the edit says.
HORIZONS = (5, 30, 120, 300, 600, 900)


def git(folder: Path, *arguments: str) -> None:
    author = {f"GIT_{who}_{part}": "dev" for who in ("AUTHOR", "COMMITTER")
              for part in ("NAME", "EMAIL")}  # fmt: skip
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True,
                   env=os.environ | author)  # fmt: skip


class World:
    """A lake, a folder with a repository, and an observer whose clock the test moves."""

    def __init__(self, home: Path, client: LocalClient, clock: ManualClock) -> None:
        self.client, self.clock = client, clock
        self.folder = home / "shop"
        self.folder.mkdir()
        git(self.folder, "init", "-q", "-b", "main")
        (self.folder / ".gitignore").write_text("*.env\n")
        self.write("app.py", "one\n")
        self.commit()
        self.windows = windows_of(find_definition())

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "x")

    def edit(self, path: str | Path, number: int = 1, session: str = "s-1", **more: Any) -> None:
        payload = {"edit_id": f"e{number}", "path": str(path), "before": "", "after": "one\n"}
        self.take([{"session_id": session, "event_id": f"edit{number}", "type": "edit",
                    "ts": self.clock.now_us(), "payload": payload, **more}])  # fmt: skip

    def take(self, events: list[Row]) -> None:
        from penstock.ingest.file_import import event_importer

        importer = event_importer(self.client)
        importer.take_body(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        assert importer.finish().rejected == 0

    def round(self, **more: Any) -> Any:
        with kept_memory(self.folder, "lake") as memory:
            tree = WorkTree(self.folder)
            return Observer(self.client, tree, self.windows, memory, self.clock, **more).round()

    def seen(self) -> list[Row]:
        sql = "select * from observations order by ts, event_id"
        with self.client.rows(sql, None) as answer:
            rows: list[Row] = answer.batches.read_all().to_pylist()
        return rows


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with open_client(tmp_path / "data", None, make=True) as client:
        assert isinstance(client, LocalClient)
        yield World(tmp_path, client, ManualClock())


def test_a_file_is_looked_at_once_at_each_horizon(world: World) -> None:
    path = world.folder / "app.py"
    world.edit(path)
    assert (world.round().edits, world.seen()) == (1, [])
    for at, horizon_s in enumerate(HORIZONS):
        before = HORIZONS[at - 1] if at else 0
        world.clock.advance(horizon_s - before)
        world.write("app.py", f"{horizon_s}\n")
        assert world.round().sent == 1
        assert world.round().sent == 0
    assert [row["text"] for row in world.seen()] == [f"{horizon}\n" for horizon in HORIZONS]
    assert {row["path"] for row in world.seen()} == {str(path)}
    assert {tuple(row["edit_ids"]) for row in world.seen()} == {("e1",)}
    assert {row["branch_changed"] for row in world.seen()} == {None}


def test_rewards_know_what_became_of_an_edit(world: World, tmp_path: Path) -> None:
    world.edit(world.folder / "app.py")
    world.clock.advance(610)
    world.round()
    ran = penstock("rewards", "run", "--data", str(tmp_path / "data"))
    assert ran.returncode == 0, ran.stderr
    sql = """select value from rewards where name = 'edit_persistence' and horizon_s = 600
        and target_kind = 'edit' and state = 'scored'"""
    asked = penstock("query", sql, "--json", "--data", str(tmp_path / "data"))
    assert [row["value"] for row in json.loads(asked.stdout)] == [1.0]


def test_edits_of_one_file_share_a_look(world: World) -> None:
    world.edit(world.folder / "app.py", 1)
    world.clock.advance(1)
    world.edit(world.folder / "app.py", 2)
    world.edit(world.folder / "app.py", 3, session="s-2")
    world.clock.advance(600)
    assert world.round().sent == 2
    ids = {row["session_id"]: row["edit_ids"] for row in world.seen()}
    assert ids == {"s-1": ["e1", "e2"], "s-2": ["e3"]}


def test_a_commit_is_a_reason_to_look(world: World) -> None:
    world.edit(world.folder / "app.py")
    world.clock.advance(3 * 3600)
    world.round()
    world.write("app.py", "two\n")
    world.commit()
    assert world.round().sent == 1
    assert world.round().sent == 0
    world.clock.advance(60)
    git(world.folder, "checkout", "-q", "-b", "other")
    world.commit()
    world.round()
    rows = world.seen()
    assert [row["text"] for row in rows] == ["two\n", "two\n"]
    assert [row["branch_changed"] for row in rows] == [None, True]


def test_a_file_that_is_gone_was_deleted_if_it_was_ever_here(world: World) -> None:
    for number, name in enumerate(("app.py", "new.py", "never.py"), 1):
        if name == "new.py":
            world.write(name, "one\n")
        world.edit(world.folder / name, number)
    world.round()
    (world.folder / "app.py").unlink()
    (world.folder / "new.py").unlink()
    world.clock.advance(600)
    done = world.round()
    assert [row["deleted"] for row in world.seen()] == [True, True]
    assert done.left_out == {"never there": 1}


def test_relative_paths_begin_where_the_session_worked(world: World) -> None:
    begun = {"session_id": "s-1", "event_id": "begun", "type": "session_start",
             "ts": world.clock.now_us(), "payload": {"repo": str(world.folder)}}  # fmt: skip
    world.take([begun])
    world.edit("app.py")
    world.edit("../elsewhere.py", 2)
    world.clock.advance(600)
    done = world.round()
    assert [row["path"] for row in world.seen()] == ["app.py"]
    assert done.left_out == {"outside of the folder": 1}


def test_what_is_not_the_sessions_is_not_read(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret\n")
    (world.folder / "link.txt").symlink_to(secret)
    (world.folder / "linked").symlink_to(tmp_path)
    world.write("keys.env", "secret\n")
    world.write("long.py", "x" * (FILE_BYTES_MAX + 1))
    (world.folder / "bytes.py").write_bytes(b"\xff\0secret")
    os.mkfifo(world.folder / "pipe.py")
    inner = world.folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "keys.env").write_text("secret\n")
    names = ["link.txt", "linked/secret.txt", "keys.env", "long.py", "bytes.py", "pipe.py",
             ".git/config", "../secret.txt", "..", "", "inner", "app.py\0", "a" * 5000]  # fmt: skip
    for number, name in enumerate(names):
        world.edit(f"{world.folder}/{name}", number)
    world.edit(secret, 99)
    world.clock.advance(600)
    done = world.round()
    assert (done.sent, world.seen()) == (0, [])
    assert done.left_out.total() >= len(names) - 2


def test_what_may_have_been_sent_is_sent_again_and_counts_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.edit(world.folder / "app.py")
    world.clock.advance(600)
    with monkeypatch.context() as killed:
        killed.setattr("penstock_jobs.sessions.watching.MemoryFile.write", _once_only())
        with pytest.raises(SystemExit):
            world.round()
    world.write("app.py", "later\n")
    world.clock.advance(1)
    assert world.round().sent == 1
    assert [row["text"] for row in world.seen()] == ["one\n"]


def _once_only() -> Callable[..., None]:
    """The second time the process is gone."""
    from penstock_jobs.sessions.watching import MemoryFile

    write, times = MemoryFile.write, []

    def written(file: MemoryFile, memory: Any) -> None:
        times.append(1)
        if len(times) > 1:
            raise SystemExit
        write(file, memory)

    return written


def test_one_observer_looks_at_a_folder_and_at_sessions_of_a_project(world: World) -> None:
    from penstock.core.errors import InvalidInput

    with kept_memory(world.folder, "lake"), pytest.raises(InvalidInput, match="another"):
        world.round()
    world.edit(world.folder / "app.py", 1, project="shop")
    world.edit(world.folder / "app.py", 2, session="s-2", project="other")
    world.clock.advance(900 * 1.25 + 1)
    done = world.round(project="shop")
    assert (done.edits, done.sent) == (1, 0)  # the look comes too late
