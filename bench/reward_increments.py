"""What a run of rewards costs when little is new, while the lake grows."""

from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Goal
from bench.measure import cpu_seconds
from bench.measurement import Measurement, Size
from bench.traffic import make_traffic
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.catalog import current
from penstock.lake.settings import LakeSettings
from penstock.lake.upkeep.merges import SEGMENTS, choose_merges, merge_each
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.lakes import HandLake, hand_lake

_HISTORY_EVENTS = 20_000
_GROWTH = 10
_NEW_EVENTS = 4_000
_BATCHES_PER_SEGMENT = 50
_TRIES = 3
_GROWN = Goal(what="new events, when the history has grown tenfold", at_most=1.25, unit=" ×")


def _measure(size: Size, directory: Path) -> Iterator[Figure]:
    """The same new sessions, in a lake with some history and in one with ten times as much."""
    with hand_lake(directory / "rewarded") as lake:
        costs = []
        for part in range(_GROWTH):
            _take_in(lake, size.of(_HISTORY_EVENTS, 400), seed=100 + part)
            if part in (0, _GROWTH - 1):
                costs.append(_increment(lake, size.of(_NEW_EVENTS, 200), seed=1000 * (part + 1)))
    small, large = costs
    yield _GROWN.figure(large / small)
    yield Figure("  CPU seconds of it", f"{small:.2f}, then {large:.2f}")


def _increment(lake: HandLake, events: int, seed: int) -> float:
    """CPU seconds of a run in which only so many events are new: the best of a few."""
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()))
    costs = []
    for number in range(_TRIES):
        _take_in(lake, events, seed=seed + number)
        costs.append(
            cpu_seconds(lambda: run(lake.lake, InlineExecutor(), RunRequest(find_definition())))
        )
    return min(costs)


def _take_in(lake: HandLake, events: int, seed: int) -> None:
    """As serving would: many segments, and what is worth a merge is merged."""
    bodies = make_traffic(events, seed=seed).plain
    for start in range(0, len(bodies), _BATCHES_PER_SEGMENT):
        for body in bodies[start : start + _BATCHES_PER_SEGMENT]:
            lake.send(body)
        lake.writer().drain()
    settings = lake.lake.settings
    live = current(lake.lake.database).segments
    groups = choose_merges(
        live,
        settings.room(LakeSettings).compaction_segments_min,
        settings.room(LakeSettings).compaction_bytes_target,
    )
    for _ in merge_each(lake.lake, SEGMENTS, groups):
        pass


MEASUREMENT = Measurement(
    name="reward-increments",
    title="Rewards of what is new",
    about="""
A run of rewards over 4,000 new events in a lake with some history, and in one with
ten times as much. The best of three.
""",
    goals=(_GROWN,),
    run=_measure,
    quick=False,
)
