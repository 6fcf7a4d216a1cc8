"""What is the local log's own: its files, and what crashes, full disks and other processes do."""

import errno
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import (
    Backlogged,
    LogCorrupt,
    LogShapeChanged,
    LogUnwritable,
    SettingInvalid,
)
from penstock.eventlog import Bounds, Entry, Held
from penstock.eventlog.local import LocalEventLog, make_offset, split_offset
from penstock.eventlog.opening import open_log as open_by_address
from penstock.settings import Settings

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., LocalEventLog]]:
    """Opens the log of the test; each opening stands for a process, as locks do not tell."""
    opened: list[LocalEventLog] = []

    def open_it(partitions: int = 1, **limits: int) -> LocalEventLog:
        limits = {"file_bytes_max": 64 * MIB, "bytes_max": 1 << 30} | limits
        log = LocalEventLog(tmp_path / "log", partitions=partitions, **limits)
        opened.append(log)
        return log

    yield open_it
    for log in opened:
        log.close()


Open = Callable[..., LocalEventLog]


def files(tmp_path: Path, partition: int = 0) -> list[Path]:
    return sorted((tmp_path / "log" / f"p-{partition:04d}").glob("*.log"))


def entries_of(log: LocalEventLog, partition: int = 0, offset: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while entries := log.read(partition, offset, 64 * KIB):
        assert all(entry.offset >= offset for entry in entries)
        found += entries
        offset = entries[-1].next_offset
    return found


def values_of(log: LocalEventLog, partition: int = 0, offset: int = 0) -> list[bytes]:
    return [value for entry in entries_of(log, partition, offset) for value in entry.values]


def append_until_full(log: LocalEventLog, *partitions: int) -> int:
    """How many appends it took, to these partitions by turns, until there was no room."""
    for count, partition in enumerate(itertools.cycle(partitions)):
        try:
            log.append({partition: [b"x" * 200]})
        except Backlogged:
            return count
    raise AssertionError


# What other processes do is a script: a test that forked would share its locks with them.

SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.eventlog.local import LocalEventLog

def open_log(path, partitions=1, **limits):
    limits = {"file_bytes_max": 64 << 20, "bytes_max": 1 << 30} | limits
    return LocalEventLog(Path(path), partitions=partitions, **limits)

def values_of(log, partition=0):
    found, offset = [], 0
    while entries := log.read(partition, offset, 1 << 16):
        found += [value for entry in entries for value in entry.values]
        offset = entries[-1].next_offset
    return found

def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())

"""


def start(script: str, *arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", SCRIPT + script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    return out.splitlines()


def hear(process: subprocess.Popen[str]) -> str:
    """The next line that it says."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End it as a crash does; what it had said by then."""
    assert process.stdout is not None
    process.send_signal(signal.SIGKILL)
    # Not by communicate(): it asks the pipe alone, and hear() may have taken more from the pipe
    # than the one line that it gave.
    said = process.stdout.read().splitlines()
    process.communicate(timeout=60)
    return said


# Torn tails


def torn(whole: bytes, last: int, kind: str) -> Iterator[bytes]:
    """The file as a crash may leave it, for every byte of the block that begins at `last`."""
    noise = random.Random(7)
    for cut in range(last, len(whole)):
        missing = len(whole) - cut
        if kind == "truncated":
            yield whole[:cut]
        elif kind == "garbage":
            yield whole[:cut] + noise.randbytes(missing)
        elif kind == "zeros":
            yield whole[:cut] + bytes(missing)
        else:
            yield whole[:cut] + bytes(missing) + noise.randbytes(4096)


@pytest.mark.parametrize("kind", ["truncated", "garbage", "zeros", "longer"])
def test_a_torn_tail_is_cut_and_nothing_before_it_is_lost(
    open_log: Open, tmp_path: Path, kind: str
) -> None:
    log = open_log()
    log.append({0: [b"first"]})
    log.append({0: [b"second", b""]})
    last = split_offset(log.bounds(0).end)[1]
    log.append({0: [b"torn away", b"and with it", b"all of its block"]})
    log.close()
    [path] = files(tmp_path)
    whole = path.read_bytes()
    for left in torn(whole, last, kind):
        path.write_bytes(left)
        again = open_log()
        assert values_of(again) == [b"first", b"second", b""]
        assert path.stat().st_size == last
        again.append({0: [b"next"]})
        assert values_of(again) == [b"first", b"second", b"", b"next"]
        again.close()


@pytest.mark.parametrize("tear", [b"P", b"PSK1", b"\0" * 100, b"PSK1\xff\xff\xff\xff" * 9])
def test_a_torn_tail_of_a_dead_process_is_cut_by_those_that_run(
    open_log: Open, tmp_path: Path, tear: bytes
) -> None:
    appender, reader = open_log(), open_log()
    appender.append({0: [b"first"]})
    bounds = appender.bounds(0)
    [path] = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + tear)
    assert reader.bounds(0) == bounds
    assert values_of(reader) == [b"first"]
    path.write_bytes(whole + tear)
    appender.append({0: [b"next"]})
    assert values_of(reader) == values_of(appender) == [b"first", b"next"]


def test_a_value_that_looks_like_a_block_is_none(open_log: Open, tmp_path: Path) -> None:
    """Whoever sends a piece of a log file cannot make a torn tail look like damage."""
    log = open_log()
    log.append({0: [b"first"]})
    [path] = files(tmp_path)
    piece = path.read_bytes()
    log.append({0: [piece * 3, b"torn"]})
    log.close()
    path.write_bytes(path.read_bytes()[:-1])
    assert values_of(open_log()) == [b"first"]


def test_blocks_of_a_removed_file_that_the_disk_brings_back_are_none(
    open_log: Open, tmp_path: Path
) -> None:
    """After a power loss a file may end with what its place on the disk held before."""
    log = open_log(file_bytes_max=1)
    for number in range(3):
        log.append({0: [b"%d" % number]})
    log.close()
    first, _, last = files(tmp_path)
    last.write_bytes(last.read_bytes() + first.read_bytes())
    assert values_of(open_log()) == [b"0", b"1", b"2"]


# Damage


def test_damage_before_the_end_is_refused_and_nothing_is_cut(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log()
    log.append({0: [b"first"]})
    start_of_second = split_offset(log.bounds(0).end)[1]
    log.append({0: [b"second"]})
    start_of_third = split_offset(log.bounds(0).end)[1]
    log.append({0: [b"third"]})
    log.close()
    [path] = files(tmp_path)
    whole = path.read_bytes()
    for position in range(start_of_third):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(LogCorrupt) as refused:
            open_log()
        begins = 0 if position < start_of_second else start_of_second
        assert refused.value.facts["position"] == begins
        assert refused.value.facts["path"] == path
        assert path.read_bytes() == damaged


def test_damage_in_a_file_that_is_rolled_stops_its_reader_there(
    open_log: Open, tmp_path: Path
) -> None:
    """What follows in other files is not given in its place."""
    log = open_log(file_bytes_max=200)
    for number in range(12):
        log.append({0: [b"%02d" % number * 20]})
    entries = entries_of(log)
    first, *_ = files(tmp_path)
    inside = [entry for entry in entries if split_offset(entry.offset)[0] == 1]
    assert len(inside) == 3
    damaged = bytearray(first.read_bytes())
    damaged[split_offset(inside[1].offset)[1] + 30] ^= 1
    first.write_bytes(damaged)

    assert log.read(0, 0, MIB) == inside[:1]
    for bytes_max in (1, 10, 100, MIB):
        with pytest.raises(LogCorrupt) as refused:
            log.read(0, inside[1].offset, bytes_max)
        assert refused.value.facts["position"] == split_offset(inside[1].offset)[1]
    assert entries_of(log, offset=inside[2].offset) == entries[2:]


@pytest.mark.parametrize("change", ["shorter", "gone"])
def test_a_file_that_was_cut_or_removed_by_others_is_not_written_over(
    open_log: Open, tmp_path: Path, change: str
) -> None:
    log = open_log()
    log.append({0: [b"first"]})
    log.append({0: [b"second"]})
    [path] = files(tmp_path)
    if change == "shorter":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.unlink()
    with pytest.raises(LogCorrupt):
        log.append({0: [b"third"]})
    with pytest.raises(LogCorrupt):
        log.bounds(0)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"version": 2, "id": "x", "partitions": 1}', b"\xff"]
)
def test_a_damaged_description_is_refused(open_log: Open, tmp_path: Path, text: bytes) -> None:
    open_log().close()
    (tmp_path / "log" / "log.json").write_bytes(text)
    with pytest.raises(LogCorrupt, match=r"log\.json"):
        open_log()


def test_another_number_of_partitions_is_refused(open_log: Open, tmp_path: Path) -> None:
    open_log(partitions=2).close()
    for partitions in (1, 3):
        with pytest.raises(LogShapeChanged, match="made with 2 partitions"):
            open_log(partitions=partitions)
    described = json.loads((tmp_path / "log" / "log.json").read_text())
    assert described["partitions"] == 2
    assert open_log(partitions=2).id == described["id"]


# Rolling, trimming, limits


def test_files_roll_at_their_limit_and_a_large_block_gets_one_of_its_own(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log(file_bytes_max=KIB)
    for size in (400, 400, 400, 5000, 100):
        log.append({0: [b"x" * size]})
    sizes = [path.stat().st_size for path in files(tmp_path)]
    assert [size // 100 for size in sizes] == [8, 4, 50, 1]
    assert [len(value) for value in values_of(log)] == [400, 400, 400, 5000, 100]


def test_trim_removes_files_that_are_wholly_covered_and_never_the_active_one(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log(file_bytes_max=200)
    for number in range(12):
        log.append({0: [b"%02d" % number * 20]})
    present = files(tmp_path)
    assert len(present) == 4
    for entry in entries_of(log):
        file, _ = split_offset(entry.offset)
        log.trim(0, entry.offset)
        assert files(tmp_path) == present[file - 1 :]
    log.trim(0, log.bounds(0).end)
    assert files(tmp_path) == present[-1:]
    log.trim(0, make_offset(1000, 0))
    assert files(tmp_path) == present[-1:]
    assert log.bounds(0).first == make_offset(4, 0)


def test_bytes_max_refuses_until_something_is_trimmed(open_log: Open) -> None:
    log = open_log(partitions=2, file_bytes_max=KIB, bytes_max=4 * KIB)
    accepted = append_until_full(log, 0, 1)
    assert 10 < accepted < 20
    with pytest.raises(Backlogged, match="wait in the event log, whose limit is 4096"):
        log.append({1: [b"x" * 200]})
    assert len(values_of(log, 0)) + len(values_of(log, 1)) == accepted
    log.trim(0, log.bounds(0).end)
    log.append({0: [b"x" * 200]})


def test_bytes_max_sees_what_another_process_trimmed(open_log: Open, tmp_path: Path) -> None:
    log = open_log(file_bytes_max=KIB, bytes_max=4 * KIB)
    append_until_full(log, 0)
    trim = "open_log(sys.argv[1], bytes_max=4096).trim(0, int(sys.argv[2]))"
    finish(start(trim, tmp_path / "log", log.bounds(0).end))
    log.append({0: [b"next"]})
    assert values_of(log)[-1] == b"next"


def test_a_log_that_the_lake_covers_wholly_has_room_again(open_log: Open, tmp_path: Path) -> None:
    """Also where all that is held lies in files that are appended to."""
    log = open_log(partitions=3, file_bytes_max=4 * KIB, bytes_max=4 * KIB)
    for _ in range(3):
        assert append_until_full(log, 0, 1, 2) > 6
        ends = [log.bounds(partition).end for partition in range(3)]
        for partition, end in enumerate(ends):
            log.trim(partition, end)
        for partition, end in enumerate(ends):
            log.append({partition: [b"next"]})
            assert values_of(log, partition, offset=end) == [b"next"]
            log.trim(partition, log.bounds(partition).end)
    assert sum(path.stat().st_size for number in range(3) for path in files(tmp_path, number)) < (
        2 * KIB
    )


def test_the_disk_reserve_refuses(open_log: Open) -> None:
    log = open_log(disk_reserve_bytes=1 << 60)
    with pytest.raises(Backlogged, match="are kept for the writer"):
        log.append({0: [b"x"]})
    assert values_of(log) == []


# Other processes

APPEND = """
log = open_log(sys.argv[1], partitions=2, file_bytes_max=4096)
for number in range(int(sys.argv[3])):
    log.append({number % 2: [b"%s:%d" % (sys.argv[2].encode(), number)] * 2})
"""


def test_processes_append_at_once_and_a_reader_sees_only_whole_entries(
    open_log: Open, tmp_path: Path
) -> None:
    """Nothing is lost or torn, each one's order is kept, and what was read once stays so."""
    count, names = 200, ("a", "b", "c")
    log = open_log(partitions=2)
    log.close()
    processes = [start(APPEND, tmp_path / "log", name, count) for name in names]
    log = open_log(partitions=2, file_bytes_max=4 * KIB)
    found: list[list[Entry]] = [[], []]
    position = [0, 0]
    while any(map(len, found)) is False or any(one.poll() is None for one in processes):
        for partition in (0, 1):
            for entry in log.read(partition, position[partition], 4 * KIB, wait_s=0.001):
                assert entry.offset >= position[partition]
                assert len(entry.values) == 2
                assert entry.values[0] == entry.values[1]
                found[partition].append(entry)
                position[partition] = entry.next_offset
    for process in processes:
        finish(process)
    for partition in (0, 1):
        found[partition] += entries_of(log, partition, position[partition])
        assert found[partition] == entries_of(log, partition)
        for name in names:
            mine = [e.values[0] for e in found[partition] if e.values[0][:1] == name.encode()]
            assert mine == [b"%s:%d" % (name.encode(), n) for n in range(partition, count, 2)]


def test_one_that_slept_while_others_rolled_and_trimmed_appends_to_what_is_there(
    open_log: Open,
) -> None:
    """Its file was removed long ago: what it put there would be lost."""
    sleeper, other = open_log(file_bytes_max=100), open_log(file_bytes_max=100)
    sleeper.append({0: [b"first"]})
    for number in range(10):
        other.append({0: [b"%d" % number * 40]})
    other.trim(0, other.bounds(0).end)
    assert sleeper.bounds(0) == other.bounds(0)
    for number in range(10):
        other.append({0: [b"%d" % number * 40]})
    other.trim(0, other.bounds(0).end)
    end = other.bounds(0).end
    sleeper.append({0: [b"awake"]})
    assert values_of(other, offset=end) == [b"awake"]
    assert values_of(sleeper, offset=end) == [b"awake"]


APPEND_AND_SAY = """
log = open_log(sys.argv[1], file_bytes_max=2000)
number = int(sys.argv[2])
while True:
    log.append({0: [b"%d" % number, b"x" * (number % 300)]})
    say(number)
    number += 1
"""


def test_what_a_killed_process_had_appended_is_there_and_others_go_on(
    open_log: Open, tmp_path: Path
) -> None:
    survivor = open_log(file_bytes_max=2000)
    first = 0
    for acknowledged in (1, 7, 40, 90):
        process = start(APPEND_AND_SAY, tmp_path / "log", first)
        said = [hear(process) for _ in range(acknowledged)]
        said += kill(process)
        done = first + len(said)
        for log in (open_log(), survivor):
            numbers = [int(value) for value in values_of(log)[::2]]
            # One more may be there: it was killed before it could say so.
            assert numbers in (list(range(done)), list(range(done + 1)))
        first = len(numbers)
        survivor.append({0: [b"%d" % first, b""]})
        first += 1


def test_a_partition_is_held_by_one_process_and_free_when_that_is_killed(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log(partitions=2)
    hold = "log = open_log(sys.argv[1], partitions=2); say(log.hold(0).name); sys.stdin.read()"
    holder = start(hold, tmp_path / "log")
    assert hear(holder) == "MINE"
    assert log.hold(0) is Held.TAKEN
    assert log.hold(1) is Held.MINE
    log.append({0: [b"a"]})  # to append takes no hold
    kill(holder)
    assert log.hold(0) is Held.MINE
    other = start(hold, tmp_path / "log")
    assert hear(other) == "TAKEN"
    kill(other)


# Disks that fail

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


# Being opened and closed


@pytest.mark.parametrize("url", ["", "local", "local:", "file:///tmp/log", "kafka:"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingInvalid, match="log_url"):
        open_by_address(Settings(data=tmp_path, log_url=url))


def test_an_address_opens_the_log_in_its_directory(open_log: Open, tmp_path: Path) -> None:
    open_log(partitions=2).append({1: [b"a"]})
    settings = Settings(
        data=tmp_path, log_url=f"local:{tmp_path}/log", log_partitions=2, disk_reserve_bytes=0
    )
    log = open_by_address(settings)
    [entry] = log.read(1, 0, MIB)
    assert entry.values == [b"a"]
    log.close()


def test_bounds_of_a_new_log(open_log: Open) -> None:
    assert open_log().bounds(0) == Bounds(make_offset(1, 0), make_offset(1, 0))


def test_offsets_fit_a_signed_64_bit_integer() -> None:
    for file, position in ((1, 0), (2**31 - 1, 2**32 - 1), (7, 2**32 - 1)):
        offset = make_offset(file, position)
        assert offset < 2**63
        assert split_offset(offset) == (file, position)


def test_other_files_in_the_directory_do_no_harm(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    for name in ("notes.log", "0000000001.log.bak", "x", ".log"):
        (tmp_path / "log" / "p-0000" / name).write_text("not of this log")
    log.append({0: [b"a"]})
    log.trim(0, log.bounds(0).end)
    assert values_of(log) == [b"a"]
    assert values_of(open_log()) == [b"a"]


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
