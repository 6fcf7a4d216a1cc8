"""Large files and long sessions, through all measures: they finish, and say the same as small
ones."""

import random
import sys
from collections.abc import Callable
from types import FrameType

from penstock_jobs.rewards.bucket import Bucket
from tests.support.rewards.measures import MEASURES, PARAMETERS
from tests.support.rewards.stories import Story, bucket

DICE = random.Random(7)
#: One line of a megabyte, as a minifier writes it.
MINIFIED = "".join(f"var a{n % 5_003}=f({DICE.randrange(99)});" for n in range(70_000))
LINES = "".join(f"value_{n} = compute({n * 7 % 1_009})\n" for n in range(10_000))


def calls_of(work: Callable[[], object]) -> int:
    """How many functions were called: it does not depend on the machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def long_session(edits: int) -> Story:
    """A file a second, and a look at each a little later."""
    told = Story()
    for number in range(edits):
        text = f"a = {number}\nresult = compute_{number}(a)\n"
        told.edit(number, None, text, f"{number}.py")
        if number >= 35:
            seen = number - 35
            told.look(number + 0.5, f"a = {seen}\nresult = compute_{seen}(a)\n", f"{seen}.py")
    return told


def test_a_session_of_twice_as_many_edits_costs_twice_as_much() -> None:
    once, twice = (
        calls_of(lambda told=told: bucket(told).trails(PARAMETERS))  # type: ignore[misc]
        for told in (long_session(300), long_session(600))
    )
    assert twice < 2.3 * once


def test_twice_as_many_edits_of_a_large_file_cost_twice_as_much() -> None:
    costs = []
    for edits in (50, 100):
        told, text = Story().look(-5, MINIFIED), MINIFIED
        for number in range(edits):
            at = 9_001 * (number + 1)
            now = f"{text[:at]}inserted_{number}={number};{text[at:]}"
            told.edit(40 * number, text, now).look(40 * number + 31, now)
            text = now
        tables = bucket(told)
        costs.append(calls_of(lambda tables=tables: measure_all(tables)))  # type: ignore[misc]
    # Of a session as long as its horizons: so many edits are carried along at most.
    assert costs[1] < 2.8 * costs[0]


def measure_all(tables: Bucket) -> None:
    for measure in MEASURES.values():
        measure(tables, PARAMETERS)
