"""By when a pending row is pending no more; and that events later than a bucket's moment are not
in it, and are told."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import SessionId
from penstock_jobs.rewards.bucket import TABLES, as_bucket, later
from penstock_jobs.rewards.definition import combine, find_definition
from penstock_jobs.rewards.measures.work_left import WorkParameters, work_left
from penstock_jobs.rewards.outcomes import standings
from penstock_jobs.rewards.rows import Standing
from tests.support.lakes import START_US as LAKE_START_US
from tests.support.lakes import make_event
from tests.support.reward_events import edited, rows_of, said
from tests.support.rewards.measures import MEASURES, PARAMETERS
from tests.support.rewards.stories import SECOND, START_US, Story, bucket, found

DEFAULT = find_definition()
TEXTS = ("a = 1\n", "a = 1\nb = two()\n", "b = two()\nc = 3\n", "")


def computed(name: str, story: Story, as_of_us: int) -> pa.Table:
    return MEASURES[name](bucket(story, as_of_us=as_of_us), PARAMETERS)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Story, int]:
    """Edits and looks in two files and turns, and when the last of them was."""
    story, at = Story().turn(-1), 0.0
    for number in range(draw(st.integers(1, 5))):
        at += draw(st.sampled_from([0.5, 4, 29, 31, 130, 700]))
        path = draw(st.sampled_from(["a.py", "b.py"]))
        if number == 0 or draw(st.booleans()):
            story.edit(at, draw(st.sampled_from(TEXTS)), draw(st.sampled_from(TEXTS)), path)
        else:
            story.look(at, draw(st.sampled_from(TEXTS)), path)
        if draw(st.booleans()):
            story.turn(at + 0.1)
    return story, START_US + round((at + 0.2) * SECOND)


@settings(max_examples=50)
@given(stories(), st.sampled_from(sorted(MEASURES)), st.integers(0, 2_000), st.data())
def test_nothing_changes_before_the_earliest_due_and_something_does_then(
    told: tuple[Story, int], name: str, waited_s: int, data: st.DataObject
) -> None:
    story, last_us = told
    as_of_us = last_us + waited_s * SECOND
    rows = computed(name, story, as_of_us)
    for row in rows.to_pylist():
        assert (row["due_us"] is not None) == (row["state"] == "pending")
        if row["due_us"] is not None:
            assert row["due_us"] > as_of_us
    earliest = pc.min(rows["due_us"]).as_py()
    if earliest is None:
        assert computed(name, story, as_of_us + 10**12) == rows
        return
    between = data.draw(st.integers(as_of_us, earliest - 1))
    assert computed(name, story, between) == rows
    assert computed(name, story, earliest - 1) == rows
    after = computed(name, story, earliest + data.draw(st.integers(0, 10**9)))
    for before, now in zip(rows.to_pylist(), after.to_pylist(), strict=True):
        if before["due_us"] == earliest:
            assert (before["state"], now["state"] != "pending") == ("pending", True)


def test_an_edit_is_due_when_its_window_ends_and_a_whole_with_its_last_part() -> None:
    story = Story().turn(-1).edit(0, None, TEXTS[0]).edit(5, None, TEXTS[1], "b.py")
    rows = computed("edit_persistence", story, START_US + 6 * SECOND)
    # 30 s and a tolerance of 10 s.
    assert found(rows, "e-1", 30)["due_us"] == START_US + 40 * SECOND
    for target, kind in (("1", "turn"), ("s-1", "session"), ("b.py", "file")):
        assert found(rows, target, 30, kind)["due_us"] == START_US + 45 * SECOND
    # What is known is not due.
    assert found(rows, "e-1", 0)["due_us"] is None
    rows = computed("edit_persistence", story, START_US + 40 * SECOND)
    assert found(rows, "e-1", 30)["state"] == "censored"
    assert found(rows, "s-1", 30, "session")["due_us"] == START_US + 45 * SECOND


def test_the_reward_of_a_session_is_due_with_the_last_term_that_it_waits_for() -> None:
    story = Story().edit(0, None, TEXTS[0])
    rows = work_left(bucket(story, as_of_us=START_US), WorkParameters())
    (whole,) = standings(DEFAULT, rows, {}).values()
    assert (whole.state, whole.reason) == ("pending", "work_left")
    assert whole.due_us == START_US + 750 * SECOND
    waiting = {
        "work_left": Standing("pending", due_us=9),
        "tests_failing": Standing("pending", due_us=12),
    }
    assert combine(DEFAULT, waiting).due_us == 12
    # One that says nothing waits for an event, and so does all.
    waiting["tests_failing"] = Standing("pending")
    assert combine(DEFAULT, waiting).due_us is None


def test_no_table_shows_what_is_later_and_the_first_of_it_is_told(tmp_path: Path) -> None:
    events = [
        said(0),
        edited(1, "a.py", "", "a = 1\n"),
        *(_later_than_the_rest(session) for session in ("s", "other")),
        make_event("s", 901, "feedback", payload={"kind": "accept"}),
        make_event("other", 950, "test_result", payload={"ok": True}),
    ]
    rows = rows_of(tmp_path, events)
    as_of_us = LAKE_START_US + 100 * SECOND
    tables = as_bucket(rows, TENANT_DEFAULT, as_of_us)
    counts: dict[str, Any] = {name: getattr(tables, name).num_rows for name in TABLES}
    assert {name: count for name, count in counts.items() if count} == {
        "edits": 1, "turns": 1, "user_messages": 1,
    }  # fmt: skip
    first = LAKE_START_US + 900 * SECOND
    assert later(rows, as_of_us) == {
        SessionId(TENANT_DEFAULT, "s"): first,
        SessionId(TENANT_DEFAULT, "other"): first,
    }
    assert later(rows, LAKE_START_US + 1_000 * SECOND) == {}
    # An event of that very moment is in it.
    assert as_bucket(rows, TENANT_DEFAULT, first).user_messages.num_rows == 3


def _later_than_the_rest(session: str) -> Any:
    return said(900, "and now?", session)
