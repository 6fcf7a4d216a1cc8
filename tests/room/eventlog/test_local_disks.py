"""Writes and syncs that fail lose nothing, and are told."""

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.eventlog import Entry
from penstock.eventlog.errors import LogCorrupt, LogShapeChanged, LogUnwritable
from penstock.eventlog.local import LocalEventLog
from tests.room.eventlog.conftest import Open
from tests.support.eventlog.local_contents import MIB, entries_of, files, values_of
from tests.support.eventlog.processes import finish, start

FILL = """
log = open_log(sys.argv[1], partitions=2, file_bytes_max=256 << 10)
number, failed = 0, 0
while failed < 3:
    try:
        log.append({0: [b"%d" % number, b"x" * 10_000], 1: [b"%d" % number, b"y" * 7_000]})
        say("appended", number)
    except PenstockError as error:
        say("failed", type(error).__name__, error)
        failed += 1
    number += 1
for partition in (0, 1):
    say("held", partition, *(int(value) for value in values_of(log, partition)[::2]))
"""
MAKE_ROOM = """
log.append({0: [b"1000", b""], 1: [b"1000", b""]})
for log in (log, open_log(sys.argv[1], partitions=2)):
    for partition in (0, 1):
        say("then", partition, *(int(value) for value in values_of(log, partition)[::2]))
"""


def check_failed_writes(said: list[str], why: str) -> None:
    appended = [int(line.split()[1]) for line in said if line.startswith("appended")]
    failures = [line for line in said if line.startswith("failed")]
    assert len(appended) > 5
    assert len(failures) == 3
    for failure in failures:
        assert "LogUnwritable" in failure
        assert why in failure
    held = {line.split()[1]: [int(n) for n in line.split()[2:]] for line in said if "held" in line}
    for partition in ("0", "1"):
        assert set(appended) <= set(held[partition])
        assert held[partition] == sorted(set(held[partition]))
        for line in said:
            if line.startswith(f"then {partition} "):
                assert [int(n) for n in line.split()[2:]] == [*held[partition], 1000]
    assert len([line for line in said if line.startswith("then")]) == 4


def test_a_write_that_fails_in_the_middle_loses_nothing_and_appends_go_on(tmp_path: Path) -> None:
    """Here a limit on the size of files ends a write halfway."""
    before = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (95_000, resource.RLIM_INFINITY))
"""
    small = FILL.replace("while failed < 3", "while failed < 3 and number < 100")
    room = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.RLIM_INFINITY))\n"
    said = finish(start(before + small + room + MAKE_ROOM, tmp_path / "log"))
    check_failed_writes(said, "File too large")


def own_mounts() -> tuple[str, ...]:
    """A command under which a script may mount what nobody else sees."""
    unshare = shutil.which("unshare")
    for flags in ("-m", "-rm"):
        if unshare is not None:
            command = (unshare, flags)
            tried = subprocess.run(
                [*command, "mount", "-t", "tmpfs", "tmpfs", "/tmp"],
                capture_output=True,
                check=False,
            )
            if tried.returncode == 0:
                return command
    pytest.skip("this system does not let a test mount a file system of its own")


def start_on_small_disk(script: str, tmp_path: Path) -> subprocess.Popen[str]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    return start(script, disk / "log", before=(*own_mounts(), "sh", "-c", mount, str(disk)))


def test_a_full_disk_loses_nothing_and_appends_go_on_once_there_is_room(tmp_path: Path) -> None:
    """Another takes the last room between the look at the disk and the write."""
    filler = """
filler = Path(sys.argv[1]).with_name("filler")
as_before = os.statvfs(filler.parent)
os.statvfs = lambda _path: as_before
filler.write_bytes(bytes(500_000))
"""
    room = "filler.unlink()\n"
    said = finish(start_on_small_disk(filler + FILL + room + MAKE_ROOM, tmp_path))
    check_failed_writes(said, "no space is left on the disk")


def test_a_read_only_disk_is_a_clear_error(tmp_path: Path) -> None:
    script = """
log = open_log(sys.argv[1])
log.append({0: [b"a"]})
log.close()
remount = "mount -o remount,{} " + str(Path(sys.argv[1]).parent)
assert os.system(remount.format("ro")) == 0
try:
    open_log(sys.argv[1])
except PenstockError as error:
    say(type(error).__name__, error)
assert os.system(remount.format("rw")) == 0
say(values_of(open_log(sys.argv[1])))
"""
    said = finish(start_on_small_disk(script, tmp_path))
    assert said[0].startswith("LogUnwritable")
    assert "Read-only file system" in said[0]
    assert said[-1] == str([b"a"])


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


@pytest.mark.parametrize("failures", [1, 2, 3, 7])
def test_a_failed_sync_is_not_tried_again_on_its_descriptor(
    open_log: Open, syncs: Syncs, failures: int
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
    assert values_of(open_log()) == [b"before", b"after", b"other"]


def test_a_failed_sync_of_what_others_appended_is_not_tried_again_either(
    open_log: Open, syncs: Syncs
) -> None:
    log, other = open_log(), open_log()
    for attempt in (lambda: log.bounds(0), lambda: log.append({0: [b"x"]})):
        other.append({0: [b"other"]})
        syncs.failing = 1
        with pytest.raises(LogUnwritable, match="Input/output error"):
            attempt()
    log.append({0: [b"after"]})
    assert values_of(log) == values_of(other) == [b"other", b"other", b"after"]


def test_failing_again_and_again_makes_no_more_files(
    open_log: Open, syncs: Syncs, tmp_path: Path
) -> None:
    log = open_log()
    log.append({0: [b"before"]})
    for _ in range(20):
        syncs.failing = 1
        with pytest.raises(LogUnwritable):
            log.append({0: [b"failed"]})
    assert len(files(tmp_path)) == 2


def test_no_reader_sees_what_is_not_on_disk_yet(open_log: Open, syncs: Syncs) -> None:
    """It would put into the lake what the log then takes back, with the offset behind it."""
    log, other = open_log(), open_log()
    log.append({0: [b"before"]})
    end = log.bounds(0).end
    found: list[list[Entry]] = []

    def read(through: LocalEventLog) -> None:
        found.append(through.read(0, end, MIB))

    readers = [threading.Thread(target=read, args=(one,)) for one in (log, other)]

    def read_while_syncing() -> None:
        for reader in readers:
            reader.start()

    syncs.before_failure = read_while_syncing
    syncs.failing = 1
    with pytest.raises(LogUnwritable):
        log.append({0: [b"failed"]})
    for reader in readers:
        reader.join()
    assert found == [[], []]


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
    assert values_of(other) == [b"1", b"2"]
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
        syncs.failing = 2
        with pytest.raises(LogUnwritable):
            log.append({0: [b"x"]})
        log.trim(0, log.bounds(0).end)
        other = open_log(partitions=2)
        other.hold(0)
        other.close()
        log.close()
        with pytest.raises(LogShapeChanged):
            open_log(partitions=3)
    for path in files(tmp_path, 1)[-1:]:
        path.write_bytes(b"damage" + path.read_bytes()[6:] * 2)
    with pytest.raises(LogCorrupt):
        open_log(partitions=2)
    assert descriptors() == before
