"""The same identity sent again, at any time and by any path, is one event."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.lake import duplicates
from penstock.lake.catalog import current
from penstock.lake.tables import log_gap
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from tests.support.lakes import HandLake, hand_lake, make_event, open_by_hand

pytestmark = pytest.mark.usefixtures("each_database")

WEEK_S = 7 * 24 * 3600

#: One event by each kind of identity: its own id, the producer's key, the content.
ONES = [
    make_event("s", 7),
    make_event("s", 7, event_id=None, source_key="k"),
    make_event("s", 7, event_id=None),
]


@pytest.fixture(params=["nothing remembered", "all packed"])
def lake(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HandLake]:
    """With no memory every identity is read back from the segments."""
    bytes_max = 1 if request.param == "nothing remembered" else 2**27
    if request.param == "all packed":
        monkeypatch.setattr(duplicates, "_READY_KEYS_MAX", 0)
    with hand_lake(tmp_path, known_bytes_max=bytes_max) as opened:
        yield opened


def rows(lake: HandLake) -> int:
    return sum(lake.stored().values())


def test_in_a_request_a_flush_the_next_flush_and_after_a_restart(lake: HandLake) -> None:
    lake.send([*ONES, make_event("s", 8), *ONES])
    lake.send(ONES)
    writer = lake.partition_writer("w")
    for _ in range(2):
        assert _drain(writer.step)
        lake.send(ONES)
    writer.release()
    assert lake.metrics.value("events_duplicate_total", tenant="default") == 3 * len(ONES)
    lake.store(ONES)
    assert rows(lake) == len(ONES) + 1


def test_after_a_week_with_others_in_between(lake: HandLake) -> None:
    writer = lake.writer()
    lake.send(ONES)
    writer.drain()
    for day in range(7):
        lake.clock.advance(WEEK_S / 7)
        lake.send([make_event(f"other-{day}-{i}", i) for i in range(50)])
        writer.drain()
    lake.send([*ONES, make_event("s", 9)])
    writer.drain()
    assert rows(lake) == 7 * 50 + len(ONES) + 1


def test_after_compaction_and_collection(lake: HandLake) -> None:
    writer = lake.writer()
    elsewhere = [one | {"session_id": "t"} for one in ONES]
    for number in range(4):
        lake.send([*elsewhere, make_event("s", number)])
        writer.drain()
    lake.send(ONES)
    writer.drain()
    merge(lake.lake, current(lake.lake.database).segments)
    collect(lake.lake, grace_s=0)
    lake.send([*ONES, *elsewhere])
    writer.drain()
    assert rows(lake) == 2 * len(ONES) + 4


def test_tenants_never_mix(lake: HandLake) -> None:
    """The same session and event of two tenants are two events, each seen by its own tenant."""
    for _ in range(2):
        for tenant in ("acme", "umbrella"):
            lake.store([make_event("s", number) for number in range(3)], tenant)
    assert set(lake.stored().values()) == {1}
    assert rows(lake) == 6
    for tenant in ("acme", "umbrella"):
        lake.send([make_event("s", 3)], tenant)
        assert lake.rows("select count(*) as n from events", tenant=tenant) == [{"n": 4}]
        assert lake.rows("select events as n from sessions", tenant=tenant) == [{"n": 4}]
    assert lake.rows("select count(*) as n from events") == [{"n": 0}]


def test_a_long_session_that_is_resumed_after_a_week(tmp_path: Path) -> None:
    """Sent again whole with one more event: one is added."""
    with hand_lake(tmp_path, flush_rows_max=2_000, known_bytes_max=1) as lake:
        history = [make_event("s", number, payload={"text": "x"}) for number in range(5_000)]
        lake.store(history)
        lake.clock.advance(WEEK_S)
        lake.store([make_event(f"other{i}", i) for i in range(100)])
        lake.store([*history, make_event("s", 5_000)])
        assert set(lake.stored().values()) == {1}
        [session] = lake.rows("select events from sessions where session_id = 's'")
        assert session == {"events": 5_001}


def test_late_and_disordered_events_are_stored_and_read_in_order(lake: HandLake) -> None:
    numbers = [5, 3, 9, 0, 7, 1, 8, 2, 6, 4]
    for start in (0, 4, 8):
        lake.store([make_event("s", number) for number in numbers[start : start + 4]])
        lake.clock.advance(WEEK_S)
    ordered = lake.rows("select seq from events order by ts, seq")
    assert [row["seq"] for row in ordered] == sorted(numbers)
    [session] = lake.rows("select duration_s, events from sessions")
    assert session == {"duration_s": 9.0, "events": 10}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_new_log_leaves_a_gap_that_is_said_and_duplicates_are_still_known(
    tmp_path: Path, partitions: int
) -> None:
    """Also where the new log has fewer partitions than the lost one."""
    events = [make_event(f"s{i}", i) for i in range(30)]
    with hand_lake(tmp_path, log_partitions=3) as lake:
        lake.store(events)
    shutil.rmtree(tmp_path / "log")
    with hand_lake(tmp_path, log_partitions=partitions) as lake:
        lake.send(events)
        assert lake.rows("select count(*) as n from events where event_id = 'e1'") == [{"n": 1}]
        lake.store([*events, make_event("s", 99)])
        assert set(lake.stored().values()) == {1}
        assert rows(lake) == 31
        with lake.lake.database.read() as connection:
            gaps = connection.execute(sa.select(log_gap.c.partition)).scalars().all()
    assert sorted(gaps) == list(range(partitions))


def test_a_segment_that_was_collected_after_its_filter_was_read_is_looked_for_again(
    tmp_path: Path,
) -> None:
    """Compaction and collection may come between the look at the filters and the file."""
    with hand_lake(tmp_path, known_bytes_max=1) as lake:
        for number in range(3):
            lake.store([make_event("s", number)])
        writer = lake.partition_writer("w", on_open := _Intruder(lake))
        on_open.armed = True
        lake.send([make_event("s", number) for number in range(4)])
        assert _drain(writer.step)
        assert on_open.done
        assert set(lake.stored().values()) == {1}
        assert rows(lake) == 4


class _Intruder:
    """Merges and collects as soon as the first segment is about to be opened."""

    def __init__(self, lake: HandLake) -> None:
        self.armed = self.done = False
        self._lake = lake
        self._open = lake.lake.store.open
        lake.lake.store.open = self.open  # type: ignore[method-assign]

    def __call__(self, _point: str) -> None: ...

    def open(self, name: str) -> object:
        if self.armed:
            self.armed, self.done = False, True
            with open_by_hand(self._lake.lake.settings.data).lake as other:
                merge(other, current(other.database).segments)
                collect(other, grace_s=0)
        return self._open(name)


def _drain(step: Callable[..., bool]) -> bool:
    moved = False
    while step(drain=True):
        moved = True
    return moved
