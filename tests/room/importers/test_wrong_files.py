"""Files that hold no events: they are named for what they look like, and nothing is taken."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.commands import penstock
from tests.support.lakes import body_of, make_event

EVENTS = body_of(make_event("s", number) for number in range(3))
ROW = {"user": "x", "text": "y", "at": 3}


def refused(path: Path, *more: str) -> str:
    done = penstock("import", str(path), *more, "--data", str(path.parent / "data"))
    assert (done.returncode, done.stdout) == (2, "")
    assert not (path.parent / "data").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("name", "content", "looks"),
    [
        ("a.jsonl", b"", "it is empty"),
        ("a.jsonl", b" \n\n", "it is empty"),
        ("a.csv", b"id,name,when\n1,x,2\n2,y,3\n", "it holds no events. An event is"),
        ("a.json", json.dumps([ROW] * 3, indent=1).encode(), "session_id, ts, type and payload"),
        ("a.jsonl", b'{"task": "t", "score": 1}\n', "`penstock bench import` reads them"),
        ("a.jsonl", b"PAR1\x15\x04" + bytes(60), "a Parquet file"),
        ("a.zip", b"PK\x03\x04" + bytes(60), "a zip archive"),
        ("a.jsonl", b"\x89PNG\r\n\x1a\n" + bytes(60), "a picture (PNG)"),
        ("a.jsonl.gz", gzip.compress(b"id,name\n1,x\n", mtime=0), "it holds no events"),
    ],
)  # fmt: skip
def test_a_file_is_named_for_what_it_looks_like(
    tmp_path: Path, name: str, content: bytes, looks: str
) -> None:
    (tmp_path / name).write_bytes(content)
    said = refused(tmp_path / name)
    assert name in said
    assert looks in said


def test_a_session_of_an_agent_that_is_read_as_events_is_handed_over(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"sessionId": "s", "uuid": "u", "type": "x"}\n')
    said = refused(tmp_path / "a.jsonl", "--format", "events")
    assert "--format claude-code" in said


def test_a_wrong_file_beside_a_right_one_is_seen_before_anything_is_taken(tmp_path: Path) -> None:
    (tmp_path / "right.jsonl").write_bytes(EVENTS)
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n")
    assert "wrong.csv" in refused(tmp_path / "right.jsonl", str(tmp_path / "wrong.csv"))


def test_in_a_folder_other_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "x", "version": "1"}')
    (folder / "events.jsonl").write_bytes(EVENTS)
    done = penstock("import", str(folder), "--data", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stored"] == 3
    assert "package.json" in done.stderr


def test_a_file_of_which_every_line_is_rejected_is_no_success(tmp_path: Path) -> None:
    lines = [make_event("s", number, type="edti") for number in range(3)]
    (tmp_path / "a.jsonl").write_bytes(body_of(lines))
    arguments = ("import", str(tmp_path / "a.jsonl"), "--data", str(tmp_path / "data"))
    done = penstock(*arguments)
    assert done.returncode == 2
    assert "3 lines rejected" in done.stderr
    assert "`penstock rejected list` shows why" in done.stderr
    done = penstock(*arguments, "--json")
    assert (done.returncode, json.loads(done.stdout)["rejected"]) == (2, 3)
    (tmp_path / "a.jsonl").write_bytes(body_of(lines) + EVENTS)
    assert penstock(*arguments).returncode == 0


def test_a_line_that_begins_wrong_does_not_cost_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"# exported on Monday\n" * 30 + EVENTS)
    done = penstock("import", str(tmp_path / "a.jsonl"), "--data", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stored"] == 3
