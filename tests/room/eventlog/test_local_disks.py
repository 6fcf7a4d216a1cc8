"""Writes and syncs that fail lose nothing, and are told."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.backends.eventlog.local import LocalEventLog
from penstock.backends.eventlog.log import Entry, LogCorrupt, LogShapeChanged, LogUnwritable
from tests.room.eventlog.conftest import Open
from tests.support.eventlog.local_contents import MIB, entries_of, files, values_of


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errno.ENOSPC, "no space is left on the disk"),
        (errno.EROFS, "Read-only file system"),
        (errno.EFBIG, "File too large"),
    ],
)
def test_a_write_that_fails_in_the_middle_is_said_and_loses_nothing(
    open_log: Open, monkeypatch: pytest.MonkeyPatch, error: int, why: str
) -> None:
    log = open_log(partitions=2, file_bytes_max=1000)
    for number in range(5):
        log.append({0: [b"%d" % number * 300], 1: [b"%d" % number]})
    before = [values_of(log, partition) for partition in (0, 1)]
    write = os.pwrite

    def fail(descriptor: int, content: memoryview, at: int) -> int:
        write(descriptor, content[: len(content) // 2], at)
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", fail)
        for _ in range(3):
            with pytest.raises(LogUnwritable, match=why):
                log.append({0: [b"failed" * 200], 1: [b"failed"]})
    log.append({0: [b"after"], 1: [b"after"]})
    for opened in (log, open_log(partitions=2)):
        assert [values_of(opened, partition) for partition in (0, 1)] == [
            [*values, b"after"] for values in before
        ]


def test_a_path_that_is_no_directory_is_a_clear_error(open_log: Open, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(LogUnwritable, match="File exists"):
        open_log()


class Syncs:
    """The syncs of this process: which descriptors fail, and which are used afterwards."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._sync, self._close = os.fdatasync, os.close
        self.failing = 0
        self.distrusted: set[int] = set()
        self.before_failure: Callable[[], None] = lambda: None
        patch.setattr(os, "fdatasync", self.fdatasync)
        patch.setattr(os, "close", self.close)

    def fdatasync(self, descriptor: int) -> None:
        assert descriptor not in self.distrusted
        if self.failing:
            self.failing -= 1
            self.before_failure()
            self.distrusted.add(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(descriptor)

    def close(self, descriptor: int) -> None:
        self.distrusted.discard(descriptor)  # its number may come again
        self._close(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.mark.parametrize("failures", [1, 2, 7])
def test_a_failed_sync_is_not_tried_again_on_its_descriptor(
    open_log: Open, syncs: Syncs, tmp_path: Path, failures: int
) -> None:
    log, other = open_log(), open_log()
    log.append({0: [b"before"]})
    syncs.failing = failures
    while syncs.failing:
        with pytest.raises(LogUnwritable, match="Input/output error"):
            log.append({0: [b"failed"]})
    log.append({0: [b"after"]})
    other.append({0: [b"other"]})
    assert values_of(log) == values_of(other) == [b"before", b"after", b"other"]
    log.close()
    again = open_log()
    assert values_of(again) == [b"before", b"after", b"other"]
    again.trim(0, again.bounds(0).end)
    assert len(files(tmp_path)) == 1


def test_a_failed_sync_of_what_others_appended_is_not_tried_again_either(
    open_log: Open, syncs: Syncs
) -> None:
    log, other = open_log(), open_log()
    attempts = (log.mend, lambda: log.append({0: [b"x"]}), lambda: log.secure(0, log.ends()[0]))
    for attempt in attempts:
        other.append({0: [b"other"]})
        syncs.failing = 1
        with pytest.raises(LogUnwritable, match="Input/output error"):
            attempt()
    log.secure(0, log.ends()[0])
    log.append({0: [b"after"]})
    assert values_of(log) == values_of(other) == [b"other", b"other", b"other", b"after"]


@pytest.mark.parametrize("before", [[], [b"before"]])
def test_what_a_reader_saw_and_the_log_took_back_leaves_its_place_empty(
    open_log: Open, syncs: Syncs, before: list[bytes]
) -> None:
    """Else a reader would go on behind it, and pass over what came in its place."""
    log, other = open_log(), open_log()
    log.append({0: before})
    end = log.bounds(0).end
    found: list[list[Entry]] = []

    def read(through: LocalEventLog) -> None:
        found.append(through.read(0, end, MIB))

    readers = [threading.Thread(target=read, args=(one,)) for one in (log, other)]

    def read_while_syncing() -> None:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    syncs.before_failure = read_while_syncing
    syncs.failing = 1
    with pytest.raises(LogUnwritable):
        log.append({0: [b"failed"]})
    log.append({0: [b"after"]})
    for through, seen in zip((log, other), found, strict=True):
        assert [entry.values for entry in seen] == [[b"failed"]]
        assert values_of(through, offset=seen[-1].next_offset) == [b"after"]
        through.secure(0, seen[-1].next_offset)
        assert values_of(through) == [*before, b"after"]


def test_a_failed_partition_takes_nothing_from_the_others(open_log: Open, syncs: Syncs) -> None:
    log = open_log(partitions=3)
    log.append({0: [b"a"], 1: [b"a"], 2: [b"a"]})
    syncs.failing = 1
    with pytest.raises(LogUnwritable):
        log.append({0: [b"b"], 1: [b"b"]})
    log.append({0: [b"c"], 1: [b"c"], 2: [b"c"]})
    for partition in range(3):
        values = values_of(log, partition)
        assert [value for value in values if value != b"b"] == [b"a", b"c"]


def test_a_new_file_is_in_its_directory_before_an_append_to_it_returns(
    open_log: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another process made the file, which may have died before it was durable."""
    log, other = open_log(file_bytes_max=1), open_log(file_bytes_max=1)
    log.append({0: [b"1"]})
    made: list[str] = []
    real_sync, real_datasync = os.fsync, os.fdatasync

    def record(kind: str, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            made.append(f"{kind} {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
            real(descriptor)

        return sync

    monkeypatch.setattr(os, "fsync", record("fsync", real_sync))
    monkeypatch.setattr(os, "fdatasync", record("fdatasync", real_datasync))
    log.append({0: [b"2"]})
    assert made == ["fsync p-0000", "fdatasync 0000000002.log"]
    made.clear()
    other.mend()
    assert made == ["fsync p-0000", "fdatasync 0000000002.log"]


def test_no_descriptor_stays_open(open_log: Open, tmp_path: Path, syncs: Syncs) -> None:
    """Whatever was done or failed in between."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for _ in range(3):
        log = open_log(partitions=2, file_bytes_max=100)
        for number in range(10):
            log.append({0: [b"%d" % number * 30], 1: [b"x"]})
        log.hold(0)
        log.hold(0)
        entries_of(log)
        syncs.failing = 1
        with pytest.raises(LogUnwritable):
            log.append({0: [b"x"]})
        log.trim(0, log.bounds(0).end)
        other = open_log(partitions=2)
        other.hold(0)
        other.close()
        log.close()
        with pytest.raises(LogShapeChanged):
            open_log(partitions=3)
    (tmp_path / "log" / "log.json").write_bytes(b"{")
    with pytest.raises(LogCorrupt):
        open_log(partitions=2)
    assert descriptors() == before
