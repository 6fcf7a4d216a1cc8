"""The rewards that count what happened in a turn, each worked by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.measures.edits import comment_chars
from penstock_jobs.rewards.measures.turns import bent
from penstock_jobs.rewards.requests import asks
from tests.support.reward_events import bucket_of


@pytest.mark.parametrize(
    ("x", "q", "value"),
    [
        (100, 0.5, 97.6), (1_000, 0.5, 828.4), (10_000, 0.5, 4_633), (100_000, 0.5, 18_100),
        (100, 1.5, 93), (1_000, 1.5, 586), (10_000, 1.5, 1_397), (100_000, 1.5, 1_801),
    ],
)  # fmt: skip
def test_the_bend_has_its_published_shape(x: float, q: float, value: float) -> None:
    assert bent(x, 1e-3, q) == pytest.approx(value, rel=1e-3)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-4, 1), st.floats(0, 3))
def test_more_never_costs_less(x: float, more: float, k: float, q: float) -> None:
    assert bent(0, k, q) == 0
    assert bent(x + more, k, q) >= bent(x, k, q) * (1 - 1e-9)
    assert bent(x, k, q) <= x * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    ("text", "is_question"),
    [
        ("Which one?", True), ("**Which one?**", True), ("どちらですか\uff1f", True),
        ("ما هو؟", True),
        ("Is it this? I took it to be so.", False), ("Done.", False), ("", False),
        ("Look:\n```js\na ? b : c?\n```", False), ("Right?\n```\nx\n```\n", True),
    ],
)  # fmt: skip
def test_a_question_ends_the_message(text: str, is_question: bool) -> None:
    assert asks(text) is is_question


@pytest.mark.parametrize(
    ("before", "after", "start", "counts"),
    [
        ("", "x = 1  # why\n", "#", (0, 12)),
        ("# a\n", "# a\n# a\n", "#", (3, 3)),
        ("", '"""\nwords\n"""\nx = 1\n', "#", (11, 16)),
        ("", "/* a\n * b\n */\nint x;\n", "//", (9, 15)),
        ("-- a\n", "", "--", (0, 0)),
    ],
)
def test_comment_chars(before: str, after: str, start: str, counts: tuple[int, int]) -> None:
    assert comment_chars(before, after, start) == counts


@pytest.mark.parametrize("name", sorted(all_rewards()))
def test_every_reward_has_a_page(name: str) -> None:
    page = all_rewards()[name].page()
    assert page.startswith(f"{name}: ")
    for part in ("Measures", "Formula", "Range", "pending", "censored", "To game it"):
        assert part in page, part


@pytest.mark.parametrize("name", [one.name for one in all_rewards().values() if not one.check])
def test_every_reward_that_needs_nothing_takes_an_empty_bucket(tmp_path: Path, name: str) -> None:
    reward = all_rewards()[name]
    found = reward.compute(bucket_of(tmp_path, []), reward.parameters())
    assert found.num_rows == 0
