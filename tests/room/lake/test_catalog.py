"""Names and times for states of the lake, and claims on their files."""

import datetime as dt
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.core.errors import InvalidInput
from penstock.lake import HistoryRemoved, SnapshotExists, SnapshotUnknown
from penstock.lake.catalog import create_snapshot, current, drop_snapshot, list_snapshots, pinned
from penstock.lake.tables import reader_lease
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from tests.support.lakes import HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


def test_a_name_is_given_once_and_dropped_once_and_does_not_mislead(lake: HandLake) -> None:
    database = lake.lake.database
    for name in ("", "  ", "x" * 129, "2026-11-21T10:00:00Z"):
        with pytest.raises(InvalidInput):
            create_snapshot(database, name)
    made = create_snapshot(database, "one", "why")
    with pytest.raises(SnapshotExists):
        create_snapshot(database, "one")
    assert list_snapshots(database) == [made]
    drop_snapshot(database, "one")
    with pytest.raises(SnapshotUnknown):
        drop_snapshot(database, "one")
    with pytest.raises(SnapshotUnknown), pinned(database, "one", 1):
        pass


def at(moment: dt.datetime, lake: HandLake) -> int:
    with pinned(lake.lake.database, moment.isoformat(), 1) as pin:
        return sum(one.rows for one in pin.segments)


def test_a_time_reads_the_lake_as_it_was_or_is_refused_but_never_reads_less(lake: HandLake) -> None:
    long_ago = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    lake.store([make_event("s", 0)])
    assert at(long_ago, lake) == 0
    lake.store([make_event("s", 1)])
    merge(lake.lake, current(lake.lake.database).segments)
    assert at(long_ago, lake) == 0
    collect(lake.lake, grace_s=0)
    with pytest.raises(HistoryRemoved):
        at(long_ago, lake)
    assert at(dt.datetime.now(dt.UTC) + dt.timedelta(days=1), lake) == 2
    with pytest.raises(SnapshotUnknown), pinned(lake.lake.database, "2026-11-21T10:00", 1):
        pass  # without a zone it is no time


def test_replaced_files_are_kept_for_the_grace_and_for_readers(lake: HandLake) -> None:
    for number in range(2):
        lake.store([make_event("s", number)])
    before = lake.files()
    with pinned(lake.lake.database, None, lease_s=600):
        merge(lake.lake, current(lake.lake.database).segments)
        assert collect(lake.lake, grace_s=0).segments == 0
    assert collect(lake.lake, grace_s=3600).segments == 0
    assert before <= lake.files()
    assert collect(lake.lake, grace_s=0).segments == 2
    assert not before & lake.files()


def test_a_reader_that_died_holds_files_until_its_lease_ends(lake: HandLake) -> None:
    for number in range(2):
        lake.store([make_event("s", number)])
    dead = pinned(lake.lake.database, None, lease_s=600)
    dead.__enter__()
    merge(lake.lake, current(lake.lake.database).segments)
    assert collect(lake.lake, grace_s=0).segments == 0
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(reader_lease).values(until=1))
    done = collect(lake.lake, grace_s=0)
    assert (done.segments, done.leases) == (2, 1)
    dead.__exit__(None, None, None)  # it was not that dead


def test_a_collection_that_was_killed_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(_name: str) -> None:
        raise Killed

    with hand_lake(tmp_path) as lake:
        for number in range(2):
            lake.store([make_event("s", number)])
        merge(lake.lake, current(lake.lake.database).segments)
        with monkeypatch.context() as patch:
            patch.setattr(lake.lake.store, "delete", die)
            with pytest.raises(Killed):
                collect(lake.lake, grace_s=0)
        assert len(lake.files()) == 4
        collect(lake.lake, grace_s=0)
        assert len(lake.files()) == 2
