"""The small print of the commit protocol: who writes, what shape the log has, how commits count."""

import pytest
import sqlalchemy as sa

from penstock.core.clock import SECOND_US
from penstock.lake import LogGrew, commits
from penstock.lake.catalog import announce_files, current, intents_kept, withdraw_intents
from penstock.lake.endpoints import seconds_until_stored
from penstock.lake.tables import lake_commit, segment_intent, writer
from tests.support.lakes import HandLake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


def test_a_writer_whose_time_is_over_is_forgotten(lake: HandLake) -> None:
    database = lake.lake.database
    commits.survey_writers(database, "gone", 60)
    writers, owners = commits.survey_writers(database, "here", 60)
    assert (writers, owners) == (["gone", "here"], {})
    with database.write() as connection:
        over = sa.update(writer).where(writer.c.owner == "gone")
        connection.execute(over.values(until=0))
    assert commits.survey_writers(database, "here", 60)[0] == ["here"]
    commits.remove_writer(database, "here")
    assert commits.survey_writers(database, "next", 60)[0] == ["next"]


def test_a_log_has_the_most_partitions_that_a_writer_saw(lake: HandLake) -> None:
    database = lake.lake.database
    for seen, agreed in ((4, 4), (2, 4), (8, 8), (3, 8)):
        shape = commits.agree_on_shape(database, "log", seen)
        assert (shape.log_id, shape.partitions) == ("log", agreed)


def test_a_commit_for_a_log_that_grew_is_refused(lake: HandLake) -> None:
    lake.send([make_event("s", 1)])
    writing = lake.partition_writer("early")
    commits.agree_on_shape(lake.lake.database, lake.lake.log.id, 8)
    with pytest.raises(LogGrew):
        writing.step(drain=True) and writing.step(drain=True)
    assert lake.stored() == {}


def test_commits_count_by_one_and_say_how_long_their_events_waited(lake: HandLake) -> None:
    before = current(lake.lake.database).snap
    assert seconds_until_stored(lake.lake, 0) == []
    for number in range(3):
        lake.store([make_event("s", number)])
    assert current(lake.lake.database).snap == before + 3
    query = sa.select(lake_commit.c.committed_at).order_by(lake_commit.c.snap)
    with lake.lake.database.read() as connection:
        times = connection.scalars(query).all()
    assert list(times) == sorted(times)
    waits = seconds_until_stored(lake.lake, 0)
    assert len(waits) == 3
    assert waits[0] >= 0
    assert seconds_until_stored(lake.lake, 4_000_000_000 * SECOND_US) == []


def test_intents_that_are_kept_are_renewed(lake: HandLake) -> None:
    database = lake.lake.database
    announce_files(database, ["events/t-default/p-0000/x.parquet"], 0, "merger")
    with database.write() as connection:
        connection.execute(sa.update(segment_intent).values(created_at=0))
    with intents_kept(database, "merger", grace_s=0.1):
        pass
    with database.write() as connection:
        assert withdraw_intents(connection, ["events/t-default/p-0000/x.parquet"])
        assert not withdraw_intents(connection, ["events/t-default/p-0000/x.parquet"])
