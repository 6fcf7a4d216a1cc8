"""Torn tails are cut off, and what else is damaged is refused, with nothing lost."""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.eventlog.local_partition import HEADER_BYTES, split_offset
from penstock.backends.eventlog.log import LogCorrupt, LogShapeChanged
from tests.room.eventlog.conftest import Open
from tests.support.eventlog.local_contents import MIB, entries_of, files, values_of

# Torn tails


def left_by_crash(whole: bytes, last: int, kind: str) -> Iterator[bytes]:
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
def test_whatever_a_crash_leaves_nothing_before_it_is_lost(
    open_log: Open, tmp_path: Path, kind: str
) -> None:
    """What is no beginning of a block is set aside: it may have been one."""
    log = open_log()
    log.append({0: [b"first"]})
    log.append({0: [b"second", b""]})
    last = split_offset(log.bounds(0).end)[1]
    log.append({0: [b"torn away", b"and with it", b"all of its block"]})
    log.close()
    [path] = files(tmp_path)
    whole = path.read_bytes()
    torn = 0
    for left in left_by_crash(whole, last, kind):
        path.write_bytes(left)
        again = open_log()
        assert values_of(again) == [b"first", b"second", b""]
        assert path.read_bytes() == left
        again.mend()
        damage = again.damage()
        assert path.read_bytes() == (left if damage else whole[:last])
        again.append({0: [b"next"]})
        assert values_of(again) == [b"first", b"second", b"", b"next"]
        assert again.damage() == damage
        again.close()
        for later in files(tmp_path)[1:]:
            later.unlink()
        for part in damage:
            assert Path(part.name).read_bytes() == left[last:]
            Path(part.name).unlink()
        torn += not damage
    assert torn >= {"truncated": len(whole) - last, "zeros": HEADER_BYTES}.get(kind, 0)
    assert torn < len(whole) - last or kind == "truncated"


@pytest.mark.parametrize("tear", [b"P", b"PSK1", b"\0" * 100])
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
    assert path.read_bytes() == whole + tear
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


def test_what_is_intact_behind_damage_is_served(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    ends = []
    for value in (b"first", b"second", b"third"):
        log.append({0: [value]})
        ends.append(split_offset(log.bounds(0).end)[1])
    log.close()
    [path] = files(tmp_path)
    whole = path.read_bytes()
    for position in range(ends[1]):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        again = open_log()
        start, end = (0, ends[0]) if position < ends[0] else (ends[0], ends[1])
        left = [value for value, at in ((b"first", 0), (b"second", ends[0])) if at != start]
        assert values_of(again) == [*left, b"third"]
        [part] = again.damage(look=True)
        assert Path(part.name).read_bytes() == damaged[start:end]
        assert part.bytes == end - start
        again.append({0: [b"fourth"]})
        assert values_of(again) == [*left, b"third", b"fourth"]
        again.close()
        path.write_bytes(whole)
        Path(part.name).unlink()


def test_damage_in_a_file_that_is_rolled_is_passed_over(open_log: Open, tmp_path: Path) -> None:
    log = open_log(file_bytes_max=210)
    for number in range(12):
        log.append({0: [b"%02d" % number * 20]})
    entries = entries_of(log)
    first, *_ = files(tmp_path)
    inside = [entry for entry in entries if split_offset(entry.offset)[0] == 1]
    assert len(inside) == 3
    whole = first.read_bytes()
    for number in range(3):
        damaged = bytearray(whole)
        damaged[split_offset(inside[number].offset)[1] + 30] ^= 1
        first.write_bytes(damaged)
        kept = [entry for entry in entries if entry != inside[number]]
        assert [entry for entry in entries_of(log) if entry.values] == kept
        for bytes_max in (1, 10, 100, MIB):
            passed, *_ = log.read(0, inside[number].offset, bytes_max)
            assert passed == inside[number]._replace(values=[])
    assert len(log.damage()) == 3


def test_a_flipped_bit_in_the_last_block_keeps_its_place(open_log: Open, tmp_path: Path) -> None:
    """The lake may cover it. What comes next must not count as covered."""
    log = open_log()
    log.append({0: [b"first"]})
    last = split_offset(log.bounds(0).end)[1]
    log.append({0: [b"last"]})
    end = log.bounds(0).end
    log.close()
    [path] = files(tmp_path)
    whole = path.read_bytes()
    for position, bit in itertools.product(range(last, len(whole)), range(8)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << bit
        path.write_bytes(flipped)
        again = open_log()
        assert values_of(again) == [b"first"]
        again.mend()
        assert values_of(again) == [b"first"]
        assert again.bounds(0).end > end
        [part] = again.damage()
        assert Path(part.name).read_bytes() == flipped[last:]
        again.close()
        Path(part.name).unlink()
        files(tmp_path)[1].unlink()


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


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"version": 2, "id": "x", "partitions": 1}', b"\xff"]
)
def test_a_damaged_description_is_refused(open_log: Open, tmp_path: Path, text: bytes) -> None:
    open_log().close()
    file = tmp_path / "log" / "log.json"
    flipped = bytearray(file.read_bytes())
    flipped[flipped.index(b'"id": "') + 9] ^= 1  # no block would be of this log
    for damaged in (text, flipped):
        file.write_bytes(damaged)
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
