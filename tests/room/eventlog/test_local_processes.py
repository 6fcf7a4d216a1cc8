"""Processes append to one log at once, are killed, and take partitions from each other."""

import fcntl
import os
from pathlib import Path

import pytest

from penstock.backends.eventlog.log import Claim, Entry
from tests.room.eventlog.conftest import Open
from tests.support.eventlog.local_contents import KIB, entries_of, values_of
from tests.support.eventlog.processes import finish, hear, kill, start

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
number, torn = map(int, sys.argv[2:])
write = os.pwrite

def write_half(descriptor, block, at):
    write(descriptor, block[:len(block) // 2], at)
    say("torn")
    signal.pause()

while True:
    if number == torn:
        os.pwrite = write_half
    log.append({0: [b"%d" % number, b"x" * (number % 300)]})
    say(number)
    number += 1
"""


def test_what_a_killed_process_had_appended_is_there_and_others_go_on(
    open_log: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of a block: readers wait for nobody, and change nothing."""
    survivor = open_log(file_bytes_max=2000)
    first = 0
    for acknowledged, is_torn in ((1, False), (7, True), (40, False), (90, True)):
        torn = first + acknowledged if is_torn else -1
        process = start(APPEND_AND_SAY, tmp_path / "log", first, torn)
        said = [hear(process) for _ in range(acknowledged)]
        if is_torn:
            assert hear(process) == "torn"
            with monkeypatch.context() as forbidden:
                for module, call in ((fcntl, "flock"), (os, "ftruncate"), (os, "fdatasync")):
                    forbidden.setattr(module, call, None)
                for log in (open_log(), survivor):
                    assert values_of(log)[::2] == [b"%d" % number for number in range(torn)]
                    assert log.bytes_beyond(0, log.bounds(0).end) == 0
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
    assert log.hold(0) is Claim.TAKEN
    assert log.hold(1) is Claim.MINE
    log.append({0: [b"a"]})  # to append takes no hold
    kill(holder)
    assert log.hold(0) is Claim.MINE
    other = start(hold, tmp_path / "log")
    assert hear(other) == "TAKEN"
    kill(other)
