"""Which attempts are missing where some are too old."""

import pytest

from penstock.checkpoints.attempts import Attempt, RecordedAttempt
from penstock_jobs.benchmarks.run import PlannedAttempt
from penstock_jobs.loop.release import missing_attempts, oldest_accepted_us

TASKS = ["a", "b"]
OLD, NEW = 50, 200


def kept(task: str, attempt: int, at: int = NEW) -> RecordedAttempt:
    return RecordedAttempt(Attempt(task=task, attempt=attempt, score=1), "run", at)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([], [(0, "a"), (0, "b"), (1, "a"), (1, "b")]),
        ([kept("a", 0), kept("b", 0)], [(1, "a"), (1, "b")]),
        ([kept("a", 0, OLD), kept("a", 1, OLD), kept("b", 0)], [(2, "a"), (3, "a"), (1, "b")]),
        ([kept("a", 0, OLD), kept("a", 1), kept("a", 2), kept("b", 7)], [(0, "b")]),
        ([kept(task, at) for task in "ab" for at in (3, 4)], []),
        ([kept("z", 0), kept("a", 1), kept("a", 2, OLD), kept("b", 0), kept("b", 1)], [(0, "a")]),
    ],
)
def test_so_many_that_are_not_too_old(
    known: list[RecordedAttempt], wanted: list[tuple[int, str]]
) -> None:
    found = missing_attempts(known, TASKS, 2, 100)
    assert found == [PlannedAttempt(task, attempt) for attempt, task in wanted]
    # Whoever is killed on the way asks for the rest.
    for one in range(len(found)):
        made = [kept(each.task, each.attempt) for each in found[:one]]
        assert missing_attempts([*known, *made], TASKS, 2, 100) == found[one:]


def test_without_an_age_nothing_is_too_old() -> None:
    assert missing_attempts([kept(task, 0, OLD) for task in TASKS], TASKS, 1, None) == []
    assert oldest_accepted_us(None, 5) is None


def test_what_will_be_too_old_before_long_is_so_already() -> None:
    assert oldest_accepted_us(1_000, 10**9) == 10**9 - 900 * 10**6
