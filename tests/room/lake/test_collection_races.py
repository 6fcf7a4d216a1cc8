"""Collection beside those who find out which files they need: none is deleted under them. Each
race is held at its worst moment, by stopping a transaction between two of its statements."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.backends.database.engine import Database
from penstock.lake import HistoryRemoved
from penstock.lake.catalog import Pin, create_snapshot, current, pinned
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.servers.interleaving import Stopped, waiting_or_done
from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.usefixtures("in_postgresql")


@pytest.fixture
def lake(in_postgresql: None, tmp_path: Path) -> Iterator[HandLake]:
    """With two segments that can be merged."""
    with hand_lake(tmp_path) as lake:
        for number in range(2):
            lake.store([make_event("s", number)])
        yield lake


def collect_all(lake: HandLake) -> None:
    collect(lake.lake, grace_s=0)


def test_a_reader_that_is_about_to_claim_files_keeps_them(
    lake: HandLake, postgres: PostgresServer
) -> None:
    database = lake.lake.database
    pins: list[Pin] = []
    claim = pinned(database, None, lease_s=600)

    def read() -> None:
        pins.append(claim.__enter__())

    reader = Stopped(database, "FROM lake_head", read)
    merge(lake.lake, current(database).segments)
    with waiting_or_done(postgres, lambda: collect_all(lake)):
        reader.finish()
    [pin] = pins
    assert [one.rows for one in pin.segments] == [1, 1]
    assert {one.name for one in pin.segments} <= lake.files()
    claim.__exit__(None, None, None)
    collect_all(lake)
    assert not {one.name for one in pin.segments} & lake.files()


def test_a_reader_that_comes_during_a_collection_waits_for_what_it_leaves(
    lake: HandLake, postgres: PostgresServer
) -> None:
    """Otherwise it would find segments whose files are about to go."""
    database = lake.lake.database
    before = datetime.now(UTC)
    merge(lake.lake, current(database).segments)
    found: list[Pin | HistoryRemoved] = []

    def read() -> None:
        try:
            with pinned(database, before.isoformat(), lease_s=600) as pin:
                found.append(pin)
        except HistoryRemoved as error:
            found.append(error)

    collection = Stopped(database, "FROM segment", lambda: collect_all(lake))
    with waiting_or_done(postgres, read):
        collection.finish()
    [outcome] = found
    assert isinstance(outcome, HistoryRemoved)


def test_a_snapshot_that_is_being_made_keeps_its_files(
    lake: HandLake, postgres: PostgresServer
) -> None:
    database = lake.lake.database
    maker = Stopped(database, "FROM lake_head", lambda: create_named(database))
    merge(lake.lake, current(database).segments)
    with waiting_or_done(postgres, lambda: collect_all(lake)):
        maker.finish()
    with pinned(database, "named", lease_s=600) as pin:
        assert [one.rows for one in pin.segments] == [1, 1]
        assert {one.name for one in pin.segments} <= lake.files()


def create_named(database: Database) -> None:
    create_snapshot(database, "named")


def test_two_collections_do_the_work_of_one(lake: HandLake, postgres: PostgresServer) -> None:
    database = lake.lake.database
    merge(lake.lake, current(database).segments)
    first = Stopped(database, "FROM segment", lambda: collect_all(lake))
    with waiting_or_done(postgres, lambda: collect_all(lake)):
        first.finish()
    [merged] = current(database).segments
    assert merged.rows == 2
    assert len(lake.files()) == 2


def test_a_reader_sees_one_state_while_others_commit(lake: HandLake) -> None:
    """Offsets of a later commit would make a query miss what that commit took from the log."""
    database = lake.lake.database
    expected = current(database)
    pins: list[Pin] = []

    def read() -> None:
        with pinned(database, None, lease_s=600) as pin:
            pins.append(pin)

    reader = Stopped(database, "FROM lake_head", read)
    lake.store([make_event("s", 2)])
    assert current(database).next_offsets != expected.next_offsets
    reader.finish()
    assert pins == [expected]
