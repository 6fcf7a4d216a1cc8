"""A function over the buckets of a lake gives the same on each executor."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.execution.executor import Executor
from penstock.lake.buckets import run_over_buckets
from penstock.lake.catalog import current, pinned
from penstock.lake.upkeep.merges import merge
from tests.support.execution.bucket_functions import count_sessions
from tests.support.lakes import HandLake, hand_lake, make_event

EXPECTED = {f"{tenant}/s{n}": 6 for tenant in "ab" for n in range(12)}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """24 sessions in 4 segments, and settings that cut them into several buckets."""
    with hand_lake(tmp_path / "data", bucket_bytes_target=4000) as lake:
        for tenant in "ab":
            for half in range(2):
                events = [make_event(f"s{n}", 3 * half + k) for n in range(12) for k in range(3)]
                lake.store(events, tenant)
        yield lake


def joined(results: list[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        assert not found.keys() & result.keys()
        found |= result
    return found


def test_the_same_on_every_executor(lake: HandLake, executor: Executor) -> None:
    pin = current(lake.lake.database)
    results = run_over_buckets(lake.lake, executor, pin, count_sessions)
    assert len(results) > 2
    assert joined(results) == EXPECTED
    assert list(joined(results)) == sorted(EXPECTED, key=lambda name: name.split("/"))


def test_a_pinned_lake_is_read_as_it_was(lake: HandLake) -> None:
    with pinned(lake.lake.database, None) as pin:
        for tenant in "ab":
            merge(lake.lake, [one for one in pin.segments if one.tenant == tenant])
        lake.store([make_event("new", 1)])
        results = run_over_buckets(lake.lake, InlineExecutor(), pin, count_sessions)
    assert joined(results) == EXPECTED


def test_an_empty_lake_has_no_buckets(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        pin = current(lake.lake.database)
        assert run_over_buckets(lake.lake, InlineExecutor(), pin, count_sessions) == []
