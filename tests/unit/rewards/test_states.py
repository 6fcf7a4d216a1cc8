"""When a value is pending, censored or invalid; what damaged input does, and what it does not."""

from collections.abc import Iterator
from typing import Any

from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.rows import REWARD_ROWS
from tests.support.rewards.measures import MEASURES, PARAMETERS, value
from tests.support.rewards.stories import SECOND, START_US, Story, bucket, found

BEFORE = "a = 1\n"
AFTER = "a = 1\nresult = compute(a)\n"


def told() -> Story:
    return Story().edit(0, BEFORE, AFTER)


def row(story: Story, horizon_s: int = 30, edit: str = "e-1", as_of: float = 9_999) -> Any:
    tables = bucket(story, as_of_us=START_US + round(as_of * SECOND))
    return found(MEASURES["edit_persistence"](tables, PARAMETERS), edit, horizon_s)


def test_pending_until_the_window_has_passed() -> None:
    # 30 s and a tolerance of 10 s.
    assert row(told(), as_of=39.9)["state"] == "pending"
    assert row(told(), as_of=40)["state"] == "censored"
    assert row(told(), as_of=40)["reason"] == "unobserved"
    # Of 900 s a quarter is tolerated: 225 s.
    assert row(told(), horizon_s=900, as_of=1_124)["state"] == "pending"
    assert row(told(), horizon_s=900, as_of=1_125)["state"] == "censored"


def test_scored_as_soon_as_it_was_seen_and_not_by_what_is_not_complete_yet() -> None:
    story = told().look(31, AFTER)
    assert row(story, as_of=32)["state"] == "scored"
    assert row(story, as_of=30.5)["state"] == "pending"
    assert row(story, as_of=-1)["state"] == "pending"


def test_only_what_is_seen_in_the_window_counts() -> None:
    assert row(told().look(29.9, AFTER))["reason"] == "unobserved"
    assert row(told().look(40.1, AFTER))["reason"] == "unobserved"
    assert row(told().look(30, AFTER))["value"] == 1
    assert row(told().look(40, AFTER))["value"] == 1
    # The first look in the window answers.
    assert row(told().look(31, AFTER).look(38, BEFORE))["value"] == 1


def test_horizon_0_is_right_after_the_edit() -> None:
    assert row(told(), horizon_s=0, as_of=0)["value"] == 1


def test_a_file_that_others_changed_before_the_next_edit() -> None:
    # The edit's `before` is the file with one of ten lines changed: that is seen, no mismatch.
    file = "".join(f"line_{n} = value_{n}\n" for n in range(10))
    changed = file.replace("value_4", "other_4")
    story = Story().look(0, file).edit(1, changed, changed + "last = 1\n")
    assert value("edit_persistence", story.look(32, changed + "last = 1\n")) == 1


def test_an_edit_too_expensive_to_compare_takes_those_before_it_along() -> None:
    parameters = EditParameters(cells_max=10_000)
    story = Story().edit(0, "ab" * 9_000, "ab" * 9_000 + "\nx = 1\n")
    story.edit(5, "ab" * 9_000 + "\nx = 1\n", "ba" * 9_000 + "c\nx = 1\n")
    story.look(31, "ba" * 9_000 + "c\nx = 1\n")
    rows = MEASURES["edit_persistence"](bucket(story), parameters)
    assert found(rows, "e-1", 30)["reason"] == "too_expensive"
    assert found(rows, "e-1", 0)["value"] == 1


def test_ids() -> None:
    story = Story()
    story.edit(0, None, "one = 1\n", "1.py", edit_id="same")
    story.edit(1, None, "two = 2\n", "2.py", edit_id="same")
    story.edit(2, None, "three = 3\n", "3.py", edit_id=None)
    story.edit(3, None, "four = 4\n", "4.py", edit_id=None, event_id=None)
    rows = MEASURES["edit_persistence"](bucket(story), PARAMETERS).to_pylist()
    ids = [
        one["target_id"] for one in rows if (one["target_kind"], one["horizon_s"]) == ("edit", 0)
    ]
    assert ids == ["same", "same#2", "edits-3", f"{START_US + 3 * SECOND}:4"]


def test_empty_tables() -> None:
    for measure in MEASURES.values():
        rows = measure(bucket(), PARAMETERS)
        assert rows.schema == REWARD_ROWS
        assert rows.num_rows == 0


def rows_of(story: Story, kind: str, horizon_s: int = 30) -> Iterator[tuple[str, Any]]:
    for one in MEASURES["edit_persistence"](bucket(story), PARAMETERS).to_pylist():
        if (one["target_kind"], one["horizon_s"]) == (kind, horizon_s):
            yield one["target_id"], one


def test_what_is_made_of_parts_without_a_value() -> None:
    story = Story().turn(-1).look(-1, "x = 1\n", "c.py")
    story.edit(0, None, AFTER).edit(0.5, None, BEFORE, "b.py").edit(0.6, "zz", "y", "c.py")
    # Nobody looked at the first two; the third is invalid: the commonest reason.
    (turn,) = rows_of(story, "turn")
    assert (turn[1]["state"], turn[1]["reason"]) == ("censored", "unobserved")
    # One is seen: scored over that one.
    (turn,) = rows_of(story.look(31, AFTER), "turn")
    assert (turn[1]["state"], turn[1]["value"]) == ("scored", 1)
    # One is pending: all is.
    as_of = START_US + 40_200_000
    rows = MEASURES["edit_persistence"](bucket(story, as_of_us=as_of), PARAMETERS)
    assert found(rows, "1", 30, "turn")["state"] == "pending"


def test_checkpoints() -> None:
    story = Story().edit(0, None, BEFORE, "a.py", checkpoint="c-1")
    story.edit(1, None, BEFORE, "b.py", checkpoint="c-2")
    assert [one["checkpoint"] for _, one in rows_of(story, "edit")] == ["c-1", "c-2"]
    (session,) = rows_of(story, "session")
    assert session[1]["checkpoint"] is None
