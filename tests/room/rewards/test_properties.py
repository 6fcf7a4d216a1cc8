"""What must hold of the measures of edits whatever the texts, and what does not hold of a published
form: each such property has a test that shows it."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock_jobs.rewards.bucket import as_bucket
from tests.support.lakes import START_US, Event, hand_lake
from tests.support.repository import ROOT
from tests.support.reward_events import DAY_US, compute
from tests.support.rewards.measures import MEASURES, PARAMETERS
from tests.support.rewards.stories import Story, bucket, found

TEXT = st.text("ab(=. \n\té𝄞", max_size=80)
SAMPLES = ROOT / "examples" / "sessions"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def measured(name: str, story: Story, horizon_s: int = 30, edit: str = "e-1") -> float | str:
    """The value, or why there is none."""
    row = found(MEASURES[name](bucket(story), PARAMETERS), edit, horizon_s)
    number: float | None = row["value"]
    return str(row["reason"]) if number is None else number


@settings(max_examples=25)
@given(TEXT, TEXT)
def test_untouched_is_1(before: str, after: str) -> None:
    for name in set(MEASURES) - {"self_rework"}:
        rows = MEASURES[name](bucket(Story().edit(0, before, after).look(31, after)), PARAMETERS)
        row = found(rows, "e-1", 30)
        assert (row["value"] or row["reason"]) in (1.0, "nothing_written")


@settings(max_examples=25)
@given(TEXT, TEXT)
def test_reverted_is_0(before: str, after: str) -> None:
    story = Story().edit(0, before, after).look(31, before)
    for name in ("edit_persistence", "line_survival"):
        assert measured(name, story) in (0.0, "nothing_written")


@settings(max_examples=25)
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


@settings(max_examples=25)
@given(lines(5), st.data())
def test_deleting_more_lines_never_raises_it(written: list[str], data: st.DataObject) -> None:
    now = list(written)
    after = "".join(["first\n", *now, "last\n"])
    story = Story().edit(0, "first\nlast\n", after)
    for at in (31, 121, 301):
        now = [line for line in now if data.draw(st.booleans())]
        story.look(at, "".join(["first\n", *now, "last\n"]))
    for name in ("edit_persistence", "line_survival"):
        values = [measured(name, story, horizon_s) for horizon_s in (0, 30, 120, 300)]
        assert values == sorted(values, reverse=True, key=float)


@pytest.mark.parametrize("beside", [False, True])
@settings(max_examples=25)
@given(some=lines(12), data=st.data())
def test_edits_elsewhere_change_nothing(beside: bool, some: list[str], data: st.DataObject) -> None:
    """Right beside the edit, what is put at its edges joins a range."""
    head, written, tail = some[:4], some[4:8], some[8:]
    before, after = "".join(head + tail), "".join(head + written + tail)
    touched = [line for line in written if data.draw(st.booleans())]
    plain = Story().edit(0, before, after).look(31, "".join(head + touched + tail))
    kept_head, kept_tail = ([], []) if beside else (head[3:], tail[:1])
    other_head = [line for line in head[: 4 - len(kept_head)] if data.draw(st.booleans())]
    other_tail = [line for line in tail[len(kept_tail) :] if data.draw(st.booleans())]
    now = ["new at the top\n", *other_head, *kept_head, *touched, *kept_tail, *other_tail]
    other = Story().edit(0, before, after).look(31, "".join([*now, "new at the end\n"]))
    of_ranges = {"edit_no_revert", "four_gram_range"} if beside else set()
    for name in set(MEASURES) - {"four_gram_presence"} - of_ranges:
        assert measured(name, other) == measured(name, plain), name


@pytest.mark.parametrize("name", MEASURES)
def test_looking_again_at_the_same_changes_nothing(name: str) -> None:
    once = Story().edit(0, "a = 1\n", "a = 1\nb = 2\n").look(31, "a = 1\nb = 3\n")
    again = Story().edit(0, "a = 1\n", "a = 1\nb = 2\n").look(20, "a = 1\nb = 2\n")
    again.look(31, "a = 1\nb = 3\n").look(31.2, "a = 1\nb = 3\n").look(33, "a = 1\nb = 3\n")
    rows = [found(MEASURES[name](bucket(story), PARAMETERS), "e-1", 30) for story in (once, again)]
    assert rows[0] == rows[1]


# However events arrive


def sample_events() -> list[Event]:
    paths = sorted(SAMPLES.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def rows_of_all_rewards(
    directory: Path, batches: list[list[Event]], **limits: int
) -> tuple[list[dict[str, Any]], int]:
    """Of a lake that took the batches one by one; and in how many buckets."""
    with hand_lake(directory, **limits) as lake:
        for events in batches:
            lake.store(events)
        plan = plan_buckets(lake.lake, current(lake.lake.database))
        tables = [
            compute(as_bucket(read_bucket(lake.lake, one), TENANT_DEFAULT, START_US + DAY_US), None)
            for one in plan
        ]
    rows = pa.concat_tables(tables)
    keys = ("session_id", "target_kind", "target_id", "name", "horizon_s")
    return rows.sort_by([(key, "ascending") for key in keys]).to_pylist(), len(plan)


@pytest.fixture(scope="module")
def in_order(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    rows, buckets = rows_of_all_rewards(tmp_path_factory.mktemp("order"), [sample_events()])
    assert buckets == 1
    return rows


@pytest.mark.parametrize(("seed", "bucket_bytes"), [(0, 4_000), (1, 20_000), (2, 1_000_000)])
def test_events_shuffled_over_several_commits_and_buckets(
    seed: int, bucket_bytes: int, tmp_path: Path, in_order: list[dict[str, Any]]
) -> None:
    dice = random.Random(seed)
    events = sample_events()
    dice.shuffle(events)
    cuts = sorted(dice.sample(range(len(events)), 5))
    batches = [events[i:j] for i, j in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    # Some come twice.
    batches.append(dice.sample(events, 20))
    rows, buckets = rows_of_all_rewards(tmp_path, batches, bucket_bytes_target=bucket_bytes)
    assert (buckets > 1) == (bucket_bytes < 1_000_000)
    assert rows == in_order
