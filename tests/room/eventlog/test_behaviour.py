"""What every event log does, by its protocol alone. A new twin joins as a parameter of `place`."""

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.eventlog.kafka_log import KafkaEventLog
from penstock.backends.eventlog.local import LocalEventLog
from penstock.backends.eventlog.log import Claim, Entry, EventLog, EventLogSettings, LogUnwritable
from tests.support.servers.broker import Broker

MIB = 1 << 20
#: Long enough that a test which needs all of it fails by being slow, not by chance.
PATIENCE_SECONDS = 30


class Place(Protocol):
    """Where logs are. A log opened again under its name is the same log."""

    def open(self, name: str = "log", partitions: int = 1) -> EventLog: ...


@dataclass
class LocalPlace:
    """Logs in directories, with files so small that they roll, or so large that they do not."""

    root: Path
    file_bytes_max: int
    opened: list[EventLog] = field(default_factory=list)

    def open(self, name: str = "log", partitions: int = 1) -> EventLog:
        log = LocalEventLog(
            self.root / name,
            partitions=partitions,
            file_bytes_max=self.file_bytes_max,
            bytes_max=1 << 30,
        )
        self.opened.append(log)
        return log


@dataclass
class KafkaPlace:
    """Logs in topics of the one broker that the tests have."""

    broker: Broker
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex)
    opened: list[EventLog] = field(default_factory=list)

    def open(self, name: str = "log", partitions: int = 1) -> EventLog:
        log = KafkaEventLog(
            f"kafka://{self.broker.address}/{self.prefix}-{name}",
            EventLogSettings(
                log_partitions=partitions,
                event_bytes_max=10 * MIB,
                log_request_seconds_max=PATIENCE_SECONDS,
            ),
        )
        log.refresh_s = 0
        self.opened.append(log)
        return log


@pytest.fixture(params=["local", "local-small-files", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: LocalPlace | KafkaPlace
    if request.param == "kafka":
        made = KafkaPlace(request.getfixturevalue("broker"))
    else:
        made = LocalPlace(tmp_path, 64 * MIB if request.param == "local" else 128)
    yield made
    for log in made.opened:
        log.close()


def entries_of(
    log: EventLog, partition: int = 0, offset: int | None = None, bytes_max: int = MIB
) -> list[Entry]:
    """All entries from the offset on, read as a writer does; their order is checked."""
    position = log.bounds(partition).first if offset is None else offset
    found: list[Entry] = []
    while entries := log.read(partition, position, bytes_max):
        for entry in entries:
            assert position <= entry.offset < entry.next_offset
            position = entry.next_offset
        found += entries
    return found


def values_of(
    log: EventLog, partition: int = 0, offset: int | None = None, bytes_max: int = MIB
) -> list[bytes]:
    found = entries_of(log, partition, offset, bytes_max)
    return [value for entry in found for value in entry.values]


@pytest.mark.parametrize("bytes_max", [1, 250])
def test_reading_goes_on_from_any_entry_and_skips_none(place: Place, bytes_max: int) -> None:
    log = place.open()
    for number in range(20):
        log.append({0: [b"%d" % number * (number % 5 + 1)]})
    entries = entries_of(log)
    for index, entry in enumerate(entries):
        assert entries_of(log, offset=entry.offset, bytes_max=bytes_max) == entries[index:]
        assert (
            entries_of(log, offset=entry.next_offset, bytes_max=bytes_max) == entries[index + 1 :]
        )


def test_at_least_one_entry_is_read_however_small_the_limit(place: Place) -> None:
    log = place.open()
    log.append({0: [b"x" * 10_000]})
    log.append({0: [b"y" * 10_000]})
    [first] = log.read(0, log.bounds(0).first, 1)
    [second] = log.read(0, first.next_offset, 1)
    assert (first.values, second.values) == ([b"x" * 10_000], [b"y" * 10_000])


def test_reading_where_nothing_is_yet_gives_nothing(place: Place) -> None:
    log = place.open()
    assert log.read(0, log.bounds(0).end, MIB) == []
    log.append({0: [b"a"]})
    end = log.bounds(0).end
    assert log.read(0, end, MIB) == []
    log.append({0: [b"b"]})
    assert values_of(log, offset=end) == [b"b"]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["thread", "process"])
def test_waiting_ends_with_an_append_of_another(place: Place, *, elsewhere: bool) -> None:
    log = place.open()
    other = place.open() if elsewhere else log
    log.append({0: [b"before"]})
    end = log.bounds(0).end
    found: list[Entry] = []

    def wait() -> None:
        found.extend(log.read(0, end, MIB, wait_s=PATIENCE_SECONDS))

    waiting = threading.Thread(target=wait)
    waiting.start()
    other.append({0: [b"awaited"]})
    waiting.join(PATIENCE_SECONDS / 2)
    assert not waiting.is_alive()
    assert [entry.values for entry in found] == [[b"awaited"]]


def test_waiting_ends_when_nothing_comes(place: Place) -> None:
    log = place.open()
    assert log.read(0, log.bounds(0).end, MIB, wait_s=0.05) == []


def test_bounds_span_what_is_there(place: Place) -> None:
    log = place.open()
    empty = log.bounds(0)
    assert empty.first == empty.end
    for number in range(10):
        log.append({0: [b"%d" % number]})
    entries = entries_of(log)
    bounds = log.bounds(0)
    assert empty.first <= bounds.first <= entries[0].offset
    assert entries[-1].next_offset == bounds.end
    assert log.read(0, bounds.end, MIB) == []


def test_bounds_hold_what_was_appended_through_another_opening(place: Place) -> None:
    """A writer that takes over must not believe that the log was cut."""
    log, other = place.open(), place.open()
    log.append({0: [b"here"]})
    for _ in range(10):
        other.append({0: [b"there"]})
        assert log.bounds(0) == other.bounds(0)


def test_offsets_only_grow(place: Place) -> None:
    log = place.open()
    ends = [log.bounds(0).end]
    for number in range(20):
        log.append({0: [b"%d" % number]})
        if number % 3 == 0:
            log.trim(0, log.bounds(0).end)
        if number % 5 == 0:
            log.close()
            log = place.open()
        ends.append(log.bounds(0).end)
    assert ends == sorted(set(ends))


def test_the_id_is_the_log_s_own(place: Place) -> None:
    log = place.open("one")
    known = log.id
    log.close()
    assert place.open("one").id == known
    assert place.open("other").id != known


def test_an_offset_that_was_trimmed_reads_from_the_first(place: Place) -> None:
    log = place.open()
    start = log.bounds(0).first
    for number in range(20):
        log.append({0: [b"%d" % number]})
    log.trim(0, log.bounds(0).end)
    assert entries_of(log, offset=start) == entries_of(log)


@pytest.mark.parametrize(
    "values",
    [[b""], [bytes(range(256)), b"", b"\n", b"PSK1", b"\x00" * 100], [b"many"] * 5000],
    ids=["empty", "every-byte", "many"],
)
def test_values_come_back_byte_for_byte(place: Place, values: list[bytes]) -> None:
    log = place.open()
    log.append({0: values})
    assert values_of(log) == values
    log.close()
    assert values_of(place.open()) == values


def test_large_values_come_back(place: Place) -> None:
    log = place.open()
    large = bytes(range(256)) * (8 * MIB // 256)
    log.append({0: [b"small", large]})
    log.append({0: [large]})
    assert values_of(log, bytes_max=1) == [b"small", large, large]


def test_a_partition_is_not_surely_held_twice(place: Place) -> None:
    """MINE is a promise that no other hears; UNKNOWN promises nothing."""
    log, other = place.open(), place.open()
    assert log.hold(0) is log.hold(0) is not Claim.TAKEN
    if log.hold(0) is Claim.MINE:
        assert other.hold(0) is Claim.TAKEN
        log.close()
        assert other.hold(0) is Claim.MINE


def test_a_closed_log_takes_nothing_and_can_be_closed_again(place: Place) -> None:
    log = place.open()
    log.append({0: [b"a"]})
    log.close()
    log.close()
    with pytest.raises(LogUnwritable, match="closed"):
        log.append({0: [b"b"]})
    assert values_of(place.open()) == [b"a"]


def test_threads_append_side_by_side(place: Place) -> None:
    """Each thread's values are all there, in its order."""
    log = place.open(partitions=2)

    def append(name: int) -> None:
        for number in range(25):
            log.append({name % 2: [b"%d:%d" % (name, number)]})

    threads = [threading.Thread(target=append, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in range(4):
        mine = [value for value in values_of(log, name % 2) if value.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(25)]


# Any order of operations, against a list

Operation = tuple[str, int, list[bytes], int, int]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "read", "trim", "reopen"]),
        st.integers(0, 1),
        st.lists(st.binary(max_size=60), max_size=4),
        st.integers(0, 1 << 30),
        st.sampled_from([1, 30, 100, 300, MIB]),
    ),
    max_size=25,
)


def test_any_order_of_operations_agrees_with_a_list(place: Place) -> None:
    @given(operations=OPERATIONS)
    @settings(max_examples=8 if isinstance(place, KafkaPlace) else 40)
    def agree(operations: list[Operation]) -> None:
        agrees_with_a_list(place, operations)

    agree()


def agrees_with_a_list(place: Place, operations: list[Operation]) -> None:
    name = uuid.uuid4().hex
    log = place.open(name, partitions=2)
    model: list[list[Entry]] = [[], []]
    for kind, partition, values, pick, bytes_max in operations:
        known = model[partition]
        chosen = known[pick % len(known)] if known else None
        if kind == "append":
            log.append({partition: values})
            found = entries_of(log, partition)
            assert found[: len(known)] == known
            assert [value for entry in found[len(known) :] for value in entry.values] == values
            model[partition] = found
        elif kind == "read" and chosen is not None:
            index = known.index(chosen)
            found = log.read(partition, chosen.offset, bytes_max)
            assert found == known[index : index + max(1, len(found))]
        elif kind == "trim" and chosen is not None:
            log.trim(partition, chosen.offset)
            found = entries_of(log, partition)
            assert len(found) >= len(known) - known.index(chosen)
            assert found == known[len(known) - len(found) :]
            model[partition] = found
        elif kind == "reopen":
            log.close()
            log = place.open(name, partitions=2)
    assert [entries_of(log, 0), entries_of(log, 1)] == model
    log.close()


def test_bytes_beyond_an_offset_shrink_to_nothing_at_the_end(place: Place) -> None:
    log = place.open()
    for _ in range(10):
        log.append({0: [b"x" * 1000]})
    entries = entries_of(log)
    left = [log.bytes_beyond(0, entry.offset) for entry in entries]
    assert left == sorted(left, reverse=True)
    assert left[0] >= 10_000
    known = entries[-1].next_offset
    assert log.bytes_beyond(0, known) == 0
    log.forget(0, log.set_apart(0))
    assert log.bytes_beyond(0, known) == 0
    log.append({0: [b"x"]})
    assert log.bytes_beyond(0, known) > 0
