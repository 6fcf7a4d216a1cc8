"""What somebody may put into a folder that is imported: it is reported, hurts nothing, and the
other files are in."""

import gzip
import json
import os
import sqlite3
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from penstock_jobs.importers import sources
from penstock_jobs.importers.report import SourceUnfit
from tests.support.claude_code_rows import asks, write
from tests.support.commands import penstock
from tests.support.session_sources import events_of, report_of

GOOD = "5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a01.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "home", asks(0, "Fix it"), name=GOOD)
    return tmp_path / "home"


def taken(folder: Path) -> int:
    return report_of(folder).formats["claude-code"].taken.counts["user_message"]


def test_links_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "outside", asks(0, "secret"), name="secret.jsonl")
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "dir").symlink_to(secret.parent)
    (folder / "loop").symlink_to(folder)
    (folder / "self.jsonl").symlink_to(folder / "self.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    assert [event["payload"].get("text") for event in events_of(folder)] == [None, "Fix it"]
    done = penstock("import", str(folder), "--dry-run", "--data", str(tmp_path / "data"))
    assert "2 × link that leads out of the folder" in done.stderr
    assert "1 × pipe, socket or device" in done.stderr


def test_a_file_that_becomes_a_link_meanwhile_is_not_read(folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "outside", asks(0, "secret"), name="secret.jsonl")
    source = sources.Candidate(folder / GOOD, folder, (GOOD,)).source()
    (folder / GOOD).unlink()
    (folder / GOOD).symlink_to(secret)
    with pytest.raises(SourceUnfit):
        list(source.pieces())


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_is_given_up(folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros compress more tightly than any text of a session; memory holds a piece of them."""
    monkeypatch.setattr(sources, "_BOMB_BYTES_MIN", 1_000_000)
    monkeypatch.setattr(sources, "_RATIO_MAX", 100)
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 100_000)
    row = json.dumps(asks(1, "First")).encode() + b"\n"
    bomb = row + b" " * 60_000_000
    packed = gzip.compress(bomb) if suffix == ".gz" else pa.compress(bomb, "zstd", asbytes=True)
    (folder / f"bomb.jsonl{suffix}").write_bytes(packed)
    report = report_of(folder)
    assert [why for _path, why in report.unfit] == [
        "it is compressed more tightly than any session"
    ]
    assert report.formats["claude-code"].taken.counts["user_message"] == 2


def test_a_line_that_is_too_long_costs_itself_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 5_000_000)
    rows = [asks(1, "Before"), asks(2, "x" * 7_000_000), asks(3, "After")]
    report = report_of(write(folder, *rows, name="long.jsonl")).formats["claude-code"]
    assert report.taken.counts["user_message"] == 2
    assert report.skipped["line over 64 MiB"].count == 1


def test_what_is_no_session_is_left_out(folder: Path) -> None:
    with zipfile.ZipFile(folder / "archive.jsonl", "w") as archive:
        archive.writestr("zeros", b"\0" * 10_000_000)
    (folder / "empty.jsonl").touch()
    (folder / "noise.jsonl").write_bytes(os.urandom(100_000))
    (folder / "deep.jsonl").write_text("[" * 100_000)
    (folder / "state.vscdb").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    (folder / "opencode.db").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    (folder / "broken.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd" + os.urandom(100))
    locked = sqlite3.connect(folder / "locked.db")
    locked.execute("CREATE TABLE t (a)")
    locked.execute("BEGIN EXCLUSIVE")
    try:
        assert taken(folder) == 1
    finally:
        locked.close()


def test_a_folder_that_cannot_be_read_costs_itself_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> object:
        if path.name == "shut":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    (folder / "shut").mkdir()
    scan = os.scandir
    monkeypatch.setattr("penstock_jobs.importers.sources.os.scandir", refuse)
    assert taken(folder) == 1


def test_a_terminal_is_not_controlled_by_names_and_texts(folder: Path, tmp_path: Path) -> None:
    evil = asks(0, "Hi", sessionId="s\x1b[2J", cwd="/code/\x1b]0;x\x07")
    odd = dict(evil, type="\x1b[31mred", uuid="u9")
    write(folder, evil, odd, {"type": "\x1b[2J"}, name="a\x1b[2Jb.jsonl")
    (folder / "b\udcff.jsonl").write_text("{}")
    data = str(tmp_path / "data")
    for arguments in (["--dry-run"], ["--json"], []):
        done = penstock("import", str(folder), "--data", data, *arguments)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr


def test_an_event_that_is_too_large_is_rejected_with_its_reason(
    folder: Path, tmp_path: Path
) -> None:
    write(folder, asks(1, "x" * 9_000_000), asks(2, "small"), name="large.jsonl")
    done = penstock("import", str(folder), "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert "`penstock rejected list` shows why" in done.stderr
