"""A backup is the lake of one moment, taken while it is served; what is restored was verified."""

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake import BackupDamaged, BackupNotEmbedded
from penstock.lake.lake import Lake, open_existing, open_or_make
from penstock.lake.upkeep.backup import MANIFEST, back_up, restore
from penstock.lake.upkeep.verification import verify
from tests.support.commands import penstock
from tests.support.lakes import HandLake, hand_lake, make_event

FORMS = pytest.mark.parametrize("form", ["copy", "copy.tar"])


@contextmanager
def filled(data: Path) -> Iterator[HandLake]:
    """Segments, and one event that only the log has."""
    with hand_lake(data) as lake:
        lake.store([make_event("s", number) for number in range(20)])
        lake.store([make_event("t", number) for number in range(20)])
        lake.send([make_event("u", 1)])
        yield lake


def events_of(lake: Lake) -> list[tuple[str, str]]:
    table = lake.query("select session_id, event_id from events order by all").arrow()
    return list(zip(*table.to_pydict().values(), strict=True))


@FORMS
def test_a_restored_lake_is_the_one_that_was_backed_up(tmp_path: Path, form: str) -> None:
    with filled(tmp_path / "lake") as by_hand:
        made = back_up(by_hand.lake, tmp_path / form)
        before = events_of(by_hand.lake)
    restored = restore(tmp_path / form, tmp_path / "again")
    assert restored == made
    with open_existing(tmp_path / "again") as lake:
        assert events_of(lake) == before
        assert len(before) == 41
    with hand_lake(tmp_path / "again") as by_hand:  # it goes on where the log ends
        by_hand.store([make_event("u", 1), make_event("u", 2)])
        assert len(events_of(by_hand.lake)) == 42
        assert verify(by_hand.lake).findings == []
    paths = [tmp_path / form, *(tmp_path / form).rglob("*")]
    assert [path for path in paths if path.stat().st_mode & 0o077] == []
    assert not list(tmp_path.glob("*.unfinished*"))


@FORMS
@pytest.mark.parametrize("kind", ["changed", "missing", "unfinished", "cut off"])
def test_a_damaged_backup_is_refused_and_nothing_is_made(
    tmp_path: Path, form: str, kind: str
) -> None:
    with filled(tmp_path / "lake") as by_hand:
        back_up(by_hand.lake, tmp_path / form)
    _damage(tmp_path / form, kind)
    with pytest.raises(BackupDamaged):
        restore(tmp_path / form, tmp_path / "again")
    assert list((tmp_path / "again").iterdir()) == []


def _damage(backup: Path, kind: str) -> None:
    folder = backup
    if backup.suffix == ".tar":
        folder = backup.with_name("unpacked")
        with tarfile.open(backup) as archive:
            archive.extractall(folder, filter="data")
    segment = next(folder.glob("lake/events/**/*.parquet"))
    if kind == "missing":
        segment.unlink()
    elif kind == "unfinished":
        (folder / MANIFEST).unlink()
    else:
        content = segment.read_bytes()
        segment.write_bytes(content[:-1] + (b"" if kind == "cut off" else b"?"))
    if backup.suffix == ".tar":
        with tarfile.open(backup, "w") as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.add(path, str(path.relative_to(folder)))


def test_a_tar_that_ends_early_or_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "lake") as by_hand:
        back_up(by_hand.lake, tmp_path / "copy.tar")
    whole = (tmp_path / "copy.tar").read_bytes()
    (tmp_path / "half.tar").write_bytes(whole[: len(whole) // 2])
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "half.tar", "../outside")
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        link = tarfile.TarInfo("penstock.db")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    for name in ("half.tar", "evil.tar", "link.tar"):
        with pytest.raises((BackupDamaged, InvalidInput)):
            restore(tmp_path / name, tmp_path / "again")
    assert not (tmp_path / "outside").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with filled(tmp_path / "lake") as by_hand:
        back_up(by_hand.lake, tmp_path / "copy")
        for taken in ("copy", "lake/copy"):
            with pytest.raises(InvalidInput):
                back_up(by_hand.lake, tmp_path / taken)
    with pytest.raises(InvalidInput, match="an empty directory"):
        restore(tmp_path / "copy", tmp_path / "lake")


def test_a_lake_whose_parts_lie_elsewhere_is_not_backed_up(tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "lake", {}, {"store_url": f"file://{tmp_path}/other"})
    with open_or_make(settings) as lake, pytest.raises(BackupNotEmbedded, match="store_url"):
        back_up(lake, tmp_path / "copy")


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    with filled(tmp_path / "lake"):
        pass
    data = ("--data", str(tmp_path / "lake"))
    made = penstock("backup", str(tmp_path / "copy.tar"), *data, "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert facts["bytes"] < os.path.getsize(tmp_path / "copy.tar")  # noqa: PTH202
    done = penstock("restore", str(tmp_path / "copy.tar"), "--data", str(tmp_path / "again"))
    assert f"{facts['files']} files" in done.stderr
    assert (
        penstock("restore", str(tmp_path / "none"), "--data", str(tmp_path / "b")).returncode == 2
    )
