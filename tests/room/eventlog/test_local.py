"""What is the local log's own: its files, their limits, and how it is opened."""

from pathlib import Path

import pytest

from penstock.backends.eventlog import open_log as open_by_address
from penstock.backends.eventlog.local_partition import make_offset, split_offset
from penstock.backends.eventlog.log import EventLogSettings
from penstock.core.errors import Backlogged, SettingInvalid
from penstock.core.settings import Settings
from tests.room.eventlog.conftest import Open
from tests.support.eventlog.local_contents import (
    KIB,
    MIB,
    append_until_full,
    entries_of,
    files,
    values_of,
)

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
    log = open_log(file_bytes_max=210)
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


def test_bytes_max_sees_what_another_process_trimmed(open_log: Open) -> None:
    log = open_log(file_bytes_max=KIB, bytes_max=4 * KIB)
    append_until_full(log, 0)
    open_log(bytes_max=4 * KIB).trim(0, log.bounds(0).end)
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


# Being opened and closed


@pytest.mark.parametrize("url", ["", "local", "local:", "file:///tmp/log", "kafka:"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingInvalid, match="log_url"):
        open_by_address(Settings(data=tmp_path, log_url=url))


def test_an_address_opens_the_log_in_its_directory(open_log: Open, tmp_path: Path) -> None:
    open_log(partitions=2).append({1: [b"a"]})
    room = EventLogSettings(log_partitions=2, disk_reserve_bytes=0)
    settings = Settings(data=tmp_path, log_url=f"local:{tmp_path}/log", rooms=(room,))
    log = open_by_address(settings)
    [entry] = log.read(1, 0, MIB)
    assert entry.values == [b"a"]
    log.close()


def test_other_files_in_the_directory_do_no_harm(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    for name in ("notes.log", "0000000001.log.bak", "x", ".log"):
        (tmp_path / "log" / "p-0000" / name).write_text("not of this log")
    log.append({0: [b"a"]})
    log.trim(0, log.bounds(0).end)
    assert values_of(log) == [b"a"]
    assert values_of(open_log()) == [b"a"]
