"""What is left when a writer dies, is paused, or does not know whether it committed."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.backends.eventlog import log as eventlog
from penstock.core.settings import load_settings
from penstock.doors.server.service import Service
from penstock.ingest.ledger import read_ledger
from penstock.ingest.partition_writer import LogTruncated, PartitionWriter
from penstock.lake import CompactionConflict, FencedOff
from penstock.lake.catalog import create_snapshot, current, pinned
from penstock.lake.segments import SegmentFile, sessions_name, write_summaries
from penstock.lake.tables import lake_commit, log_partition, segment_intent
from penstock.lake.upkeep import merges
from penstock.lake.upkeep.merges import SEGMENTS, merge, swap, write_merged
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import HandLake, files_of, hand_lake, make_event
from tests.support.producers import is_whole

pytestmark = pytest.mark.usefixtures("each_database")

POINTS = ["intent written", "file half written", "file written", "committed"]
EVENTS = [make_event("s", number) for number in range(100)]


class Died(BaseException):
    """Not an Exception: nothing between here and the test may go on after it."""


def dies_at(point: str) -> Callable[[str], None]:
    def crash_point(where: str) -> None:
        if where == point:
            raise Died

    return crash_point


def drain(writer: PartitionWriter) -> None:
    while writer.step(drain=True):
        pass


def holds(lake: HandLake, count: int) -> None:
    """The lake is whole: so many events, each once, and nothing that nobody knows of."""
    assert set(lake.stored().values()) == {1}
    assert len(lake.stored()) == count
    assert verify(lake.lake).findings == []
    assert read_ledger(lake.lake).discrepancies == []


def has_no_litter(lake: HandLake) -> None:
    collect(lake.lake, grace_s=0)
    collect(lake.lake, grace_s=0)
    assert lake.files() == files_of(current(lake.lake.database).segments)
    assert intents(lake) == 0


def intents(lake: HandLake) -> int:
    with lake.lake.database.read() as connection:
        count = sa.select(sa.func.count()).select_from(segment_intent)
        return int(connection.execute(count).scalar_one())


# F1, F2, F3, F4: the process dies


DYING = """
    import os, sys
    from pathlib import Path
    from tests.support.lakes import hand_lake
    data, point = Path(sys.argv[1]), sys.argv[2]

    def crash_point(where):
        if where == point:
            os._exit(9)

    with hand_lake(data) as lake:
        lake.writer(crash_point).drain()
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_process_dies_and_the_next_goes_on(tmp_path: Path, point: str) -> None:
    """Nothing is tidied up on the way out: a file is left half written, or whole and unknown."""
    with hand_lake(tmp_path) as lake:
        lake.send(EVENTS)
    command = [sys.executable, "-c", textwrap.dedent(DYING), str(tmp_path), point]
    assert subprocess.run(command, check=False).returncode == 9
    with hand_lake(tmp_path) as lake:
        left = lake.files()
        assert len(left) == (0 if point == "intent written" else 1)
        assert verify(lake.lake).findings == []  # an intent says whose they are
        collect(lake.lake, grace_s=0)
        assert lake.files() == left  # the dead writer's claim stands until another takes over
        assert lake.rows("select count(*) as n from events") == [{"n": 100}]
        lake.store()
        holds(lake, 100)
        has_no_litter(lake)


def test_a_writer_that_dies_before_or_after_the_log_is_trimmed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 1000)
    for when in ("before", "after"):
        with hand_lake(tmp_path) as lake:
            for event in EVENTS:
                lake.send([event])
            log = lake.lake.log
            trim = log.trim

            def die(partition: int, before: int, when: str = when, trim: object = trim) -> None:
                if when == "after":
                    trim(partition, before)  # type: ignore[operator]
                raise Died

            log.trim = die  # type: ignore[method-assign]
            with pytest.raises(Died):
                lake.writer().drain()
            del log.trim
        with hand_lake(tmp_path) as lake:
            lake.store()
            holds(lake, 100)
            has_no_litter(lake)
            assert len(list((tmp_path / "log" / "p-0000").glob("*.log"))) == 1


@pytest.mark.smoke
def test_a_torn_file_is_never_part_of_the_lake(lake: HandLake, tmp_path: Path) -> None:
    """F2: what a dead writer left is written anew by the next, whatever it looks like."""
    lake.send(EVENTS)
    with pytest.raises(Died):
        lake.writer(dies_at("file written")).drain()
    for name in lake.files():
        path = tmp_path / "lake" / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert lake.rows("select count(*) as n from events") == [{"n": 100}]
    lake.store()
    holds(lake, 100)
    has_no_litter(lake)


def test_a_cut_log_stops_the_writer_for_a_person(tmp_path: Path) -> None:
    """A log that ends before what the lake covers is not the log that it was."""
    with hand_lake(tmp_path) as lake:
        lake.store(EVENTS)
    [path] = (tmp_path / "log" / "p-0000").glob("*.log")
    os.truncate(path, 0)
    with hand_lake(tmp_path) as lake, pytest.raises(LogTruncated, match="move the log"):
        lake.writer().drain()
    with hand_lake(tmp_path) as lake:
        assert [finding.name for finding in verify(lake.lake).findings] == ["the event log"]
    with pytest.raises(LogTruncated):  # what it acknowledged would count as stored
        Service(load_settings(tmp_path)).start()


# F5: nobody knows whether it committed


class Ambiguous(Database):
    """Its next commit is done, or not, but either way the writer sees an error."""

    armed: str | None = None

    @contextmanager
    def write(self, *, one_state: bool = False) -> Iterator[Connection]:
        armed, self.armed = self.armed, None
        with super().write(one_state=one_state) as connection:
            yield connection
            if armed == "not done":
                raise DatabaseUnreachable(why="the connection broke before the commit")
        if armed == "done":
            raise DatabaseUnreachable(why="the connection broke after the commit")


@pytest.mark.parametrize("happened", ["done", "not done"])
def test_an_ambiguous_commit_is_resolved_by_looking(lake: HandLake, happened: str) -> None:
    database = Ambiguous(lake.lake.settings.database_url)

    once = iter([happened])

    def arm(point: str) -> None:
        if point == "file written":
            database.armed = next(once, None)

    writer = lake.partition_writer("w", arm, database)
    lake.send(EVENTS[:10])
    with pytest.raises(DatabaseUnreachable):
        drain(writer)
    assert len(lake.stored()) == (10 if happened == "done" else 0)
    writer.start_over()
    lake.send(EVENTS)
    drain(writer)
    writer.release()
    holds(lake, 100)
    has_no_litter(lake)
    database.close()


# F6, F7: zombies


@pytest.mark.parametrize("point", POINTS[:3])
def test_a_writer_that_was_overtaken_commits_nothing(lake: HandLake, point: str) -> None:
    """It believes in its claim while it writes its file; another takes over and commits."""
    lake.send(EVENTS[:50])
    successor = lake.partition_writer("successor")

    def overtake(where: str) -> None:
        if where == point:
            lake.send(EVENTS[50:])
            drain(successor)
            holds(lake, 100)

    zombie = lake.partition_writer("zombie", overtake)
    with pytest.raises(FencedOff):
        drain(zombie)
    successor.release()
    holds(lake, 100)
    has_no_litter(lake)


def test_a_zombie_clears_away_what_collection_has_forgotten(lake: HandLake) -> None:
    """It hung for longer than collection waits for files that appear late."""
    lake.send(EVENTS)
    successor = lake.partition_writer("successor")

    def hang(where: str) -> None:
        if where == "intent written":
            drain(successor)
            collect_twice(lake)

    with pytest.raises(FencedOff):
        drain(lake.partition_writer("zombie", hang))
    is_whole(lake.lake)


def test_a_merge_that_hung_clears_its_file_away(lake: HandLake) -> None:
    for n in (0, 50):
        lake.store(EVENTS[n : n + 50])
    segments = current(lake.lake.database).segments
    merged = write_merged(lake.lake, segments)
    collect_twice(lake)  # gives it up, deletes its files, and forgets them
    with pytest.raises(CompactionConflict):
        swap(lake.lake, SEGMENTS, segments, write_late(lake, merged))
    is_whole(lake.lake)


def collect_twice(lake: HandLake) -> None:
    for _ in range(2):
        collect(lake.lake, grace_s=0)


def write_late(lake: HandLake, merged: SegmentFile) -> SegmentFile:
    """Its files appear only now."""
    for name in (merged.name, sessions_name(merged.name)):
        with lake.lake.store.create(name) as file:
            file.write(b"late")
    return merged


def test_an_overtaken_writer_with_a_full_buffer_starts_over(lake: HandLake) -> None:
    """F7: what it had read is dropped, and it goes on from where the other one got."""
    lake.send(EVENTS[:50])
    slow = lake.partition_writer("slow")
    slow.step()
    assert not slow.idle
    quick = lake.partition_writer("quick")
    drain(quick)
    with pytest.raises(FencedOff):
        slow.step(drain=True)
    slow.start_over()
    lake.send(EVENTS)
    drain(slow)  # takes it back, and the quick one is the zombie now
    holds(lake, 100)
    lake.send([make_event("s", 100)])
    with pytest.raises(FencedOff):
        drain(quick)
    lake.store()
    holds(lake, 101)
    has_no_litter(lake)


def test_a_file_that_collection_gave_up_cannot_be_committed(lake: HandLake) -> None:
    """Even by a writer that nobody fenced off: collection and commit exclude each other."""

    def give_up(point: str) -> None:
        if point == "file written":
            with lake.lake.database.write() as connection:
                connection.execute(sa.update(segment_intent).values(claimed_at=1))
            collect(lake.lake, grace_s=0)

    lake.send(EVENTS)
    with pytest.raises(FencedOff):
        drain(lake.partition_writer("w", give_up))
    lake.store()
    holds(lake, 100)


PAUSED = """
    import sys, time
    from pathlib import Path
    from penstock.lake import FencedOff
    from tests.support.lakes import hand_lake

    def crash_point(where):
        if where == "file written":
            print("paused", flush=True)
            sys.stdin.readline()

    with hand_lake(Path(sys.argv[1])) as lake:
        try:
            lake.writer(crash_point).drain()
        except FencedOff:
            sys.exit(7)
"""


def test_a_paused_process_is_fenced_off_when_it_wakes_up(tmp_path: Path) -> None:
    """F6. It holds the log's lock all the while; an operator, or another log, overrules it."""
    with hand_lake(tmp_path) as lake:
        lake.send(EVENTS)
    command = [sys.executable, "-c", textwrap.dedent(PAUSED), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zombie:
        assert zombie.stdin is not None
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == b"paused\n"
        zombie.send_signal(signal.SIGSTOP)
        with hand_lake(tmp_path) as lake:
            beaten = lake.writer()
            assert not beaten.drain()  # it is another's
            assert lake.stored() == {}
            (tmp_path / "log" / "p-0000" / "writer.lock").rename(tmp_path / "aside")
            lake.store()
            holds(lake, 100)
            zombie.send_signal(signal.SIGCONT)
            zombie.stdin.write(b"\n")
            zombie.stdin.close()
            assert zombie.wait(timeout=300) == 7
            holds(lake, 100)
            has_no_litter(lake)


# F10, F13: time


def test_a_wall_clock_that_jumps_neither_hurries_nor_stops_a_flush(tmp_path: Path) -> None:
    with hand_lake(tmp_path, flush_seconds_max=2.0) as lake:
        writer = lake.partition_writer("w")
        for number, jump_s in enumerate((-86_400, 86_400, -3 * 86_400)):
            lake.send([EVENTS[number]])
            writer.step()
            lake.clock.jump(jump_s)
            writer.step()
            assert len(lake.stored()) == number
            lake.clock.advance(2.0)
            writer.step()
            assert len(lake.stored()) == number + 1
        holds(lake, 3)  # though events arrived before those that were stored before them


def test_time_in_the_history_never_runs_back(lake: HandLake) -> None:
    """The database's clock may: then commits share the latest time that there was."""
    lake.store(EVENTS[:1])
    ahead = 10**12
    with lake.lake.database.write() as connection:
        connection.execute(
            sa.text("update lake_head set committed_at = committed_at + :by"), {"by": ahead}
        )
    for number in range(1, 4):
        lake.store([EVENTS[number]])
    with lake.lake.database.read() as connection:
        times = connection.execute(
            sa.select(lake_commit.c.committed_at).order_by(lake_commit.c.snap)
        ).scalars()
        ordered = list(times)
    assert ordered == sorted(ordered)
    assert ordered[-1] - ordered[0] == ahead


def test_a_lease_of_the_future_keeps_nobody_out_who_holds_the_log(lake: HandLake) -> None:
    """A clock that was ahead left a lease that would run for a year: the log's lock decides."""
    lake.store(EVENTS[:1])
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(log_partition).values(owner="gone", lease_until=2**60))
    lake.store(EVENTS)
    holds(lake, 100)


# F12: compaction


def test_a_merge_that_loses_while_it_writes_changes_nothing(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lake.store([EVENTS[number]])
    planned = current(lake.lake.database).segments
    create = lake.lake.store.create
    lost: list[str] = []

    def create_late(name: str, **how: bool) -> object:
        if not lost:
            lost.append(name)
            merge(lake.lake, planned[:2])
        return create(name, **how)

    monkeypatch.setattr(lake.lake.store, "create", create_late)
    with pytest.raises(CompactionConflict):
        merge(lake.lake, planned)
    assert len(current(lake.lake.database).segments) == 2
    holds(lake, 3)
    has_no_litter(lake)


def test_a_merge_that_collection_gave_up_changes_nothing(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took longer than the grace: it might as well have been dead."""
    for number in range(2):
        lake.store([EVENTS[number]])
    summarise = lake.lake.summariser.summarise

    def collect_meanwhile(rows: object) -> object:
        collect(lake.lake, grace_s=0)
        return summarise(rows)

    monkeypatch.setattr(lake.lake.summariser, "summarise", collect_meanwhile)
    with pytest.raises((CompactionConflict, FileNotFoundError)):
        merge(lake.lake, current(lake.lake.database).segments)
    holds(lake, 2)
    has_no_litter(lake)


def test_new_segments_get_files_of_sessions_whatever_happens_meanwhile(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (0, 50):
        lake.store(EVENTS[n : n + 50])
    database, write = lake.lake.database, write_summaries
    before = lake.rows("select * from sessions order by session_id")

    def meanwhile(event: Callable[[], object]) -> None:
        """Something happens once the file is there, and nobody knows of it."""
        waiting = [event]

        def write_and_more(*whose: Any) -> object:
            facts = write(*whose)
            if waiting:
                waiting.pop()()
            return facts

        with monkeypatch.context() as patched:
            patched.setattr(merges, "write_summaries", write_and_more)
            lake.summarise()

    with pytest.raises(ZeroDivisionError):
        meanwhile(lambda: 1 // 0)  # it is killed
    assert lake.rows("select * from sessions order by session_id") == before
    lake.summarise()
    assert all(stored.summarised for stored in current(database).segments)
    assert lake.rows("select * from sessions order by session_id") == before
    holds(lake, 100)
    has_no_litter(lake)
    lake.store([make_event("new", 200)])

    def merge_and_collect() -> None:
        merge(lake.lake, current(database).segments)
        collect_twice(lake)

    meanwhile(merge_and_collect)
    holds(lake, 101)
    has_no_litter(lake)


def test_appends_do_not_disturb_a_merge_nor_the_merge_a_reader(lake: HandLake) -> None:
    for number in range(3):
        lake.store([EVENTS[number]])
    create_snapshot(lake.lake.database, "named")
    with pinned(lake.lake.database, None, lease_s=60) as pin:
        planned = pin.segments
        lake.store(EVENTS[3:50])
        merge(lake.lake, planned)
        collect(lake.lake, grace_s=0)
        assert {one.name for one in planned} <= lake.files()
    assert lake.rows("select count(*) as n from events", "named") == [{"n": 3}]
    holds(lake, 50)
