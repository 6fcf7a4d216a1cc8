"""What became of an edit is known from the repository that the session worked in."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import penstock

SESSION = "5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a09"
BEFORE = "def total(prices):\n    return 0\n"
AFTER = "def total(prices):\n    whole = sum(prices)\n    return round(whole, 2)\n"
KEPT_HALF = "def total(prices):\n    whole = sum(prices)\n    return format(whole)\n"


def commit(repository: Path, text: str, at: datetime, message: str) -> None:
    (repository / "shop").mkdir(exist_ok=True)
    (repository / "shop" / "total.py").write_text(text)
    stamp = at.isoformat()
    names = ("GIT_AUTHOR", "GIT_COMMITTER")
    author = {f"{name}_{part}": "dev" for name in names for part in ("NAME", "EMAIL")}
    dates = {f"{name}_DATE": stamp for name in names}
    for arguments in (["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run(
            ["git", *arguments], cwd=repository, check=True, env=os.environ | author | dates
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    repository = tmp_path / "shop"
    repository.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    commit(repository, BEFORE, began - timedelta(hours=1), "before")
    commit(repository, AFTER, began + timedelta(minutes=3), "round the total")
    commit(repository, KEPT_HALF, began + timedelta(minutes=14), "as text")

    path = str(repository / "shop" / "total.py")
    base = {"sessionId": SESSION, "cwd": str(repository / "shop"), "version": "2.1.80"}
    call = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": path}}
    record = {"filePath": path, "originalFile": BEFORE, "oldString": "    return 0\n"}
    record |= {"newString": AFTER.partition("\n")[2]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    rows = [
        {"type": "user", "message": {"content": "Round the total"}},
        {"type": "assistant", "message": {"id": "m1", "content": [call]}},
        {"type": "user", "message": {"content": [result]}, "toolUseResult": record},
        {"type": "assistant", "message": {"id": "m2", "content": [{"type": "text", "text": "Ok"}]}},
    ]
    folder = tmp_path / "home" / "projects" / "-shop"
    folder.mkdir(parents=True)
    with (folder / f"{SESSION}.jsonl").open("w") as file:
        for number, row in enumerate(rows):
            ts = (began + timedelta(seconds=number)).isoformat()
            file.write(json.dumps(base | row | {"uuid": f"u{number}", "timestamp": ts}) + "\n")
    return tmp_path


def test_import_and_rewards_say_what_became_of_an_edit(home: Path) -> None:
    data = str(home / "data")
    done = penstock("import", str(home / "home"), "--data", data)
    assert done.returncode == 0, done.stderr
    assert "1 edits" in done.stderr
    assert penstock("rewards", "run", "--data", data).returncode == 0
    sql = """SELECT horizon_s, round(value, 2) AS value FROM rewards WHERE state = 'scored'
        AND name = 'edit_persistence' AND target_kind = 'edit' AND superseded_at IS NULL
        AND horizon_s IN (300, 600, 900) ORDER BY horizon_s"""
    rows = json.loads(penstock("query", sql, "--json", "--data", data).stdout)
    values = {row["horizon_s"]: row["value"] for row in rows}
    assert values[600] == 1.0
    assert 0.3 < values[900] < 1.0


def test_a_second_import_adds_the_commits_since_and_no_other(home: Path) -> None:
    data = str(home / "data")
    penstock("import", str(home / "home"), "--data", data)
    count = "SELECT count(*) AS n FROM events WHERE type = 'vcs_commit'"
    first = json.loads(penstock("query", count, "--json", "--data", data).stdout)[0]["n"]
    penstock("import", str(home / "home"), "--data", data)
    assert json.loads(penstock("query", count, "--json", "--data", data).stdout)[0]["n"] == first
    commit(home / "shop", BEFORE, datetime.now(UTC) - timedelta(hours=1), "take it back")
    penstock("import", str(home / "home"), "--data", data)
    more = json.loads(penstock("query", count, "--json", "--data", data).stdout)[0]["n"]
    assert more == first + 1


def test_without_git_nothing_is_read_but_the_session(home: Path) -> None:
    data = str(home / "data")
    penstock("import", str(home / "home"), "--no-git", "--data", data)
    sql = "SELECT count(*) AS n FROM events WHERE source = 'git'"
    assert json.loads(penstock("query", sql, "--json", "--data", data).stdout)[0]["n"] == 0
