"""Queries of a few sessions open the segments that may hold them, and see all of their rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.events.event import TENANT_DEFAULT, session_key
from penstock.lake.catalog import current
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.session_filters import SessionFilters
from tests.support.lakes import HandLake, hand_lake, make_event


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """Three segments; `both` is in the first and in the last."""
    with hand_lake(tmp_path) as lake:
        for number, sessions in enumerate((["a", "both"], ["b"], ["c", "both"])):
            lake.store([make_event(session, number) for session in sessions])
        yield lake


def held(filters: SessionFilters, lake: HandLake, *sessions: str) -> list[int]:
    """The places of the segments."""
    segments = current(lake.lake.database).segments
    keys = [session_key(TENANT_DEFAULT, session) for session in sessions]
    return [segments.index(segment) for segment in filters.holding(segments, keys)]


def test_segments_without_the_sessions_are_left_out(lake: HandLake) -> None:
    filters = SessionFilters(lake.lake.database)
    assert held(filters, lake, "both") == [0, 2]
    assert held(filters, lake, "a", "b") == [0, 1]
    assert held(filters, lake, "nobody") == []
    assert held(filters, lake) == []


def test_the_same_where_no_filter_is_kept(lake: HandLake) -> None:
    filters = SessionFilters(lake.lake.database, bytes_max=4)
    for _ in range(2):
        assert held(filters, lake, "both") == [0, 2]


def test_a_query_of_named_sessions_reads_their_files_alone(lake: HandLake) -> None:
    lake.send([make_event("both", 9), make_event("b", 9)])  # in the log, and in no segment yet
    sql = "select count(*) as events from events where session_id = 'both'"
    query = OwnQuery(sql, frozenset({"events"}), sessions=["both"])
    assert lake.lake.query(query).arrow()["events"].to_pylist() == [3]
    sql = "select session_id, events from sessions order by session_id"
    query = OwnQuery(sql, frozenset({"sessions"}), sessions=["both"])
    rows = {row["session_id"]: row["events"] for row in lake.lake.query(query).arrow().to_pylist()}
    assert rows["both"] == 3
    assert rows["b"] == 1, "what is new, without the segment that holds the rest"
