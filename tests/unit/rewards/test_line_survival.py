"""line_survival, by hand: as one counts lines with `git blame -w -M -C`."""

import pytest

from tests.support.rewards.measures import state, value
from tests.support.rewards.stories import Story

BEFORE = "def total(rows):\n    return 0\n"
AFTER = "def total(rows):\n    first = 1\n    second = 2\n    return first + second\n"


def survival(now: str) -> float:
    return value("line_survival", Story().edit(0, BEFORE, AFTER).look(31, now))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        # Three lines are the edit's: first, second and the return that it changed.
        (AFTER, 1),
        (BEFORE, 0),
        (AFTER.replace("    second = 2\n", ""), 2 / 3),
        (AFTER.replace("first = 1", "first = 17"), 2 / 3),
        (AFTER.replace("    ", "\t"), 1),
        (AFTER.replace("total(rows)", "total(rows, more)"), 1),
        ("import os\n\n" + AFTER, 1),
        ("", 0),
    ],
)
def test_lines(now: str, expected: float) -> None:
    assert survival(now) == pytest.approx(expected)


def test_lines_that_the_agent_changed_again() -> None:
    # The second edit changes one of three lines, the user another: 1 / 2.
    again = AFTER.replace("second = 2", "second = 200")
    now = again.replace("first = 1", "first = 17")
    told = Story().edit(0, BEFORE, AFTER).edit(5, AFTER, again).look(31, now)
    assert value("line_survival", told) == pytest.approx(1 / 2)


def test_a_deletion_has_no_lines() -> None:
    told = Story().edit(0, AFTER, BEFORE.replace("return 0", "return first + second"))
    assert state("line_survival", told.look(31, BEFORE)) == ("invalid", "nothing_written")
