"""What must hold of edit_persistence whatever the texts."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.rewards.rows import Bucket
from tests.rewards.measures import MEASURES, PARAMETERS
from tests.rewards.stories import Story, bucket, found

TEXT = st.text("ab(=. \n\té𝄞", max_size=80)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def persistence(story: Story, horizon_s: int = 30, edit: str = "e-1") -> float | str:
    """The value, or why there is none."""
    row = found(MEASURES["edit_persistence"](bucket(story), PARAMETERS), edit, horizon_s)
    value: float | None = row["value"]
    return str(row["reason"]) if value is None else value


@settings(deadline=None)
@given(TEXT, TEXT)
def test_untouched_is_1(before: str, after: str) -> None:
    for name in ("edit_persistence", "edit_no_revert", "four_gram_range", "four_gram_presence"):
        rows = MEASURES[name](bucket(Story().edit(0, before, after).look(31, after)), PARAMETERS)
        row = found(rows, "e-1", 30)
        assert (row["value"] or row["reason"]) in (1.0, "nothing_written")


@settings(deadline=None)
@given(TEXT, TEXT)
def test_reverted_is_0(before: str, after: str) -> None:
    story = Story().edit(0, before, after).look(31, before)
    assert persistence(story) in (0.0, "nothing_written")


@settings(deadline=None)
@given(TEXT, TEXT, TEXT)
def test_all_values_are_between_0_and_1(before: str, after: str, now: str) -> None:
    story = Story().edit(0, before, after).edit(1, after, now).look(31.5, before).look(121, now)
    tables = bucket(story)
    for measure in MEASURES.values():
        for row in measure(tables, PARAMETERS).to_pylist():
            assert (row["value"] is not None) == (row["state"] == "scored")
            assert (row["reason"] is None) == (row["state"] in ("scored", "pending"))
            assert row["value"] is None or 0 <= row["value"] <= 1


@st.composite
def lines(draw: st.DrawFn, count: int) -> list[str]:
    """Lines in which no character occurs twice."""
    sizes = draw(st.lists(st.integers(8, 40), min_size=count, max_size=count))
    dice = random.Random(draw(st.integers(0, 999)))
    return ["".join(dice.sample(LETTERS, size)) + "\n" for size in sizes]


@settings(deadline=None)
@given(lines(5), st.data())
def test_deleting_more_never_raises_it(written: list[str], data: st.DataObject) -> None:
    now = "".join(written)
    story = Story().edit(0, "first\nlast\n", f"first\n{now}last\n")
    for at in (31, 121, 301):
        start = data.draw(st.integers(0, len(now)))
        end = data.draw(st.integers(start, len(now)))
        now = now[:start] + now[end:]
        story.look(at, f"first\n{now}last\n")
    values = [persistence(story, horizon_s) for horizon_s in (0, 30, 120, 300)]
    assert values == sorted(values, reverse=True, key=float)


@settings(deadline=None)
@given(lines(12), st.data())
def test_edits_elsewhere_change_nothing(some: list[str], data: st.DataObject) -> None:
    head, written, tail = some[:4], some[4:8], some[8:]
    before, after = "".join(head + tail), "".join(head + written + tail)
    touched = [line for line in written if data.draw(st.booleans())]
    plain = Story().edit(0, before, after).look(31, "".join(head + touched + tail))
    other_head = ["new at the top\n", *(line for line in head if data.draw(st.booleans()))]
    other_tail = [*(line for line in tail if data.draw(st.booleans())), "new at the end\n"]
    now = "".join(other_head + touched + other_tail)
    assert persistence(Story().edit(0, before, after).look(31, now)) == persistence(plain)


def shuffled(tables: Bucket, dice: random.Random) -> Bucket:
    """The same rows in another order and in other chunks."""

    def mixed(table: pa.Table) -> pa.Table:
        order = pa.array(dice.sample(range(table.num_rows), table.num_rows), pa.int64())
        cut = dice.randint(0, table.num_rows)
        return pa.concat_tables([table.take(order[:cut]), table.take(order[cut:])])

    views = ("edits", "observations", "turns", "events")
    empty = pa.table({})
    return Bucket(
        as_of_us=tables.as_of_us,
        user_messages=empty,
        model_calls=empty,
        tool_calls=empty,
        feedback=empty,
        **{view: mixed(getattr(tables, view)) for view in views},
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", MEASURES)
def test_the_order_of_rows_changes_nothing(name: str, seed: int) -> None:
    dice = random.Random(seed)
    stories = []
    for session in range(3):
        story = Story(f"s-{session}").turn(-1)
        texts = ["a = 1\nb = 2\n", "a = 1\nb = two()\nc = 3\n", "a = one()\nc = 3\n", "a = 1\n"]
        for at in range(4):
            story.edit(at, texts[0], texts[1 + at % 3], f"{at}.py")
            for seconds in (5, 30, 30.2, 120, 600):
                story.look(at + seconds + 1, dice.choice(texts), f"{at}.py", seq=None)
        stories.append(story)
    tables = bucket(*stories)
    expected = MEASURES[name](tables, PARAMETERS).to_pylist()
    assert MEASURES[name](shuffled(tables, dice), PARAMETERS).to_pylist() == expected


@pytest.mark.parametrize("name", MEASURES)
def test_looking_again_at_the_same_changes_nothing(name: str) -> None:
    once = Story().edit(0, "a = 1\n", "a = 1\nb = 2\n").look(31, "a = 1\nb = 3\n")
    again = Story().edit(0, "a = 1\n", "a = 1\nb = 2\n").look(20, "a = 1\nb = 2\n")
    again.look(31, "a = 1\nb = 3\n").look(31.2, "a = 1\nb = 3\n").look(33, "a = 1\nb = 3\n")
    rows = [found(MEASURES[name](bucket(story), PARAMETERS), "e-1", 30) for story in (once, again)]
    assert rows[0] == rows[1]
