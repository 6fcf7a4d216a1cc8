"""Large files, through all measures: they finish, and say the same as small ones."""

import random

import pytest

from tests.rewards.measures import MEASURES, PARAMETERS, value
from tests.rewards.stories import Story, bucket, found

DICE = random.Random(7)
#: One line of a megabyte, as a minifier writes it.
MINIFIED = "".join(f"var a{n % 5_003}=f({DICE.randrange(99)});" for n in range(70_000))
LINES = "".join(f"value_{n} = compute({n * 7 % 1_009})\n" for n in range(10_000))


def test_a_megabyte_in_one_line_of_which_a_little_changes() -> None:
    assert len(MINIFIED) > 1_000_000
    now = f"/*a*/{MINIFIED[:600_000]}/*b*/{MINIFIED[600_001:]}"
    told = Story().edit(0, None, MINIFIED).look(31, now)
    assert value("edit_persistence", told) > 0.999
    assert value("four_gram_presence", told) > 0.999


def test_a_megabyte_in_one_line_of_which_half_is_replaced() -> None:
    half = len(MINIFIED) // 2
    now = MINIFIED[:half] + "".join(f"let {n}q;" for n in range(60_000))
    told = Story().edit(0, None, MINIFIED).look(31, now)
    tables = bucket(told)
    for name in ("edit_persistence", "four_gram_presence", "four_gram_range"):
        row = found(MEASURES[name](tables, PARAMETERS), "e-1", 30)
        # Replaced in one piece by something else: a value, or that it costs too much.
        assert row["reason"] == "too_expensive" or 0.4 < row["value"] < 0.7


@pytest.mark.parametrize("name", ["edit_persistence", "line_survival"])
def test_ten_thousand_lines(name: str) -> None:
    # Every tenth of ten thousand lines is taken away: the lines are of nearly the same length.
    kept = [line for n, line in enumerate(LINES.splitlines(keepends=True)) if n % 10]
    told = Story().edit(0, None, LINES).look(31, "".join(kept))
    assert value(name, told) == pytest.approx(0.9, abs=0.01)
