"""What a local log holds, for its tests."""

import itertools
from pathlib import Path

from penstock.backends.eventlog.local import LocalEventLog
from penstock.backends.eventlog.log import Entry
from penstock.core.errors import Backlogged

KIB, MIB = 1 << 10, 1 << 20


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
