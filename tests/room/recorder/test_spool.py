"""Batches on disk, and what other processes left there."""

import gzip
import stat
from pathlib import Path

import pytest

from penstock.ingest.recorder.spool import Spool, lines_of

MIB = 1024 * 1024


def _lines(*numbers: int) -> list[bytes]:
    return [b'{"n":%d}\n' % number for number in numbers]


def _content(spool: Spool) -> list[bytes]:
    lines = []
    while (batch := spool.first()) is not None:
        lines += lines_of(batch)
        spool.remove(batch)
    return lines


def test_files_and_folders_are_of_their_user_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", MIB)
    spool.put(_lines(1))
    [folder] = (tmp_path / "spool").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    spool.close()


def test_the_next_process_takes_over_what_one_left_and_first(tmp_path: Path) -> None:
    before = Spool(tmp_path, MIB)
    before.put(_lines(1))
    before.put(_lines(2))
    before.close()
    after = Spool(tmp_path, MIB)
    after.put(_lines(3))
    after.adopt()
    assert after.events == 3
    assert _content(after) == _lines(1, 2, 3)
    after.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_holds_stays_its_own(tmp_path: Path) -> None:
    living = Spool(tmp_path, MIB)
    living.put(_lines(1))
    other = Spool(tmp_path, MIB)
    other.adopt()
    assert other.first() is None
    other.close()
    assert _content(living) == _lines(1)
    living.close()


def test_files_that_are_none_of_ours_are_left_alone(tmp_path: Path) -> None:
    before = Spool(tmp_path, MIB)
    before.put(_lines(1))
    before.close()
    [folder] = tmp_path.iterdir()
    (folder / "what-x.ndjson.gz").write_bytes(b"x")
    (folder / "000000000009-1.part").write_bytes(b"half")
    (tmp_path / "file").write_bytes(b"x")
    after = Spool(tmp_path, MIB)
    after.adopt()
    assert _content(after) == _lines(1)
    after.close()


def test_without_a_disk_batches_wait_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    spool = Spool(tmp_path / "file" / "spool", MIB)
    assert spool.put(_lines(1, 2))
    assert _content(spool) == _lines(1, 2)
    spool.close()


def test_a_batch_is_halved_in_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    spool.put(_lines(1, 2, 3))
    spool.put(_lines(4))
    first = spool.first()
    assert first is not None
    spool.halve(first)
    assert (spool.events, spool.given) == (4, 4)
    assert [batch.events for batch in [spool.first()] if batch] == [1]
    assert _content(spool) == _lines(1, 2, 3, 4)
    spool.close()


def test_a_broken_file_cannot_be_halved(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    spool.put(_lines(1, 2))
    batch = spool.first()
    assert batch is not None
    assert batch.path is not None
    batch.path.write_bytes(gzip.compress(b"x" * 1000)[:-12])
    with pytest.raises((OSError, EOFError)):
        spool.halve(batch)
    spool.close()
