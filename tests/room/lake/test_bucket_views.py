"""What a job reads of a bucket is what a query sees."""

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import Bucket, SessionId, plan_buckets, plan_sessions, read_bucket
from penstock.lake.catalog import Pin, current
from penstock.lake.query.view_sources import bucket_views
from tests.support.lakes import HandLake, make_event

VIEWS = ["edits", "events", "feedback", "model_calls", "observations", "tool_calls", "turns"]
EDIT = {"path": "a.py", "before": "", "after": "x = 1\n"}
LOOK = {"path": "a.py", "text": "x = 2\n"}


def fill(lake: HandLake) -> None:
    for number in range(3):  # three segments
        events = [
            make_event(f"s{n}", number, kind, event_id=f"{kind}{number}", payload=payload)
            for n in range(4)
            for kind, payload in (
                ("user_message", {"text": "go on"}),
                ("edit", EDIT),
                ("file_observed", LOOK),
                ("feedback", {"kind": "accept"}),
                ("model_call", {"tool_calls": [{"id": "t", "name": "read", "arguments": {}}]}),
            )
        ]
        lake.store(events)
    lake.store([make_event("s1", 9)], tenant="other")


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_all_buckets_is_that_of_a_query(lake: HandLake, name: str) -> None:
    fill(lake)
    [bucket] = plan_buckets(lake.lake, current(lake.lake.database))
    rows = read_bucket(lake.lake, bucket)
    found = bucket_views(rows, TENANT_DEFAULT, [name])[name]
    assert found.num_rows > 0
    assert sorted(map(str, found.to_pylist())) == sorted(
        map(str, lake.rows(f"select * from {name}"))
    )


def test_only_some_columns_and_rows_of_a_view(lake: HandLake) -> None:
    fill(lake)
    [bucket] = plan_buckets(lake.lake, current(lake.lake.database))
    rows = read_bucket(lake.lake, bucket)
    found = bucket_views(
        rows,
        TENANT_DEFAULT,
        ["edits", "events"],
        columns={"edits": ["session_id", "path"], "events": ["type"]},
        where={"events": "type = 'feedback'"},
    )
    assert found["edits"].to_pylist()[:1] == [{"session_id": "s0", "path": "a.py"}]
    assert found["edits"].num_rows == 12
    assert found["events"].to_pylist() == [{"type": "feedback"}] * 12


def test_a_session_is_found_by_the_segments_filters(lake: HandLake) -> None:
    fill(lake)
    lake.store([make_event("late", 0)])
    pin = current(lake.lake.database)
    [late] = of_session(lake, pin, "late")
    assert len(late.segments) == 1
    [one] = of_session(lake, pin, "s1")
    rows = read_bucket(lake.lake, one, ["tenant", "session_id"]).to_pylist()
    assert len(rows) == 15
    assert rows == [{"tenant": TENANT_DEFAULT, "session_id": "s1"}] * 15
    [none] = of_session(lake, pin, "nobody")
    assert read_bucket(lake.lake, none).num_rows == 0


def of_session(lake: HandLake, pin: Pin, session: str) -> list[Bucket]:
    return list(plan_sessions(lake.lake, pin, [(SessionId(TENANT_DEFAULT, session),)], 1000))
