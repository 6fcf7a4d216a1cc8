"""What a run of rewards costs when little is new, while the lake grows."""

from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.figures import Figure, Goal
from bench.measure import cpu_seconds
from bench.measurement import Measurement, Size
from bench.traffic import START, Event, batches, generate_sessions, make_traffic
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake import LakeSettings
from penstock.lake.catalog import current
from penstock.lake.upkeep.merges import SEGMENTS, choose_merges, merge_each
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.lakes import HandLake, hand_lake

_HISTORY_EVENTS = 20_000
_GROWTH = 10
_NEW_EVENTS = 4_000
_BATCHES_PER_SEGMENT = 50
_TRIES = 3
_RUNS = 12
_ARRIVING_SESSIONS = 320
#: A cycle of five hours.
_ARRIVING_EVERY = timedelta(hours=5) / _ARRIVING_SESSIONS
_DAY_US = 86_400_000_000
_ARRIVING = Goal(what="12,000 events computed in twelve runs of five hours", at_most=2.0, unit=" ×")
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
    events = _arriving(size.of(_ARRIVING_SESSIONS, 24))
    # Else the second would find what the first one knew of messages and texts.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as alone:
        once = alone.submit(_in_runs, directory / "once", events, 1).result()
        often = alone.submit(_in_runs, directory / "often", events, _RUNS).result()
    yield _ARRIVING.figure(often / once)
    yield Figure("  CPU seconds of it", f"{often:.2f}, beside {once:.2f} of one run")


def _arriving(sessions: int) -> list[Event]:
    """Return the events of sessions that begin one after the other, by time."""
    starts = (START + number * _ARRIVING_EVERY for number in range(sessions))
    told = (next(generate_sessions(1, seed, start=at)) for seed, at in enumerate(starts))
    return sorted((event for session in told for event in session), key=_at_us)


def _at_us(event: Event) -> int:
    return round(datetime.fromisoformat(event["ts"]).timestamp() * 1e6)


def _in_runs(data: Path, events: list[Event], runs: int) -> float:
    """CPU seconds of so many runs while the events arrive. The last is a day later."""
    request, spent = RunRequest(find_definition()), 0.0
    first_us, last_us = _at_us(events[0]), _at_us(events[-1])
    with hand_lake(data) as lake:
        for number in range(runs):
            ends_us = first_us + (last_us - first_us) * (number + 1) // runs
            arrived = bisect_right(events, ends_us, key=_at_us)
            for body in batches(events[:arrived], 100):
                lake.send(body)
            lake.writer().drain()
            events = events[arrived:]
            now_us = ends_us if events else ends_us + _DAY_US
            compute = partial(run, lake.lake, InlineExecutor(), request, now_us=now_us)
            spent += cpu_seconds(compute)
    return spent


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
ten times as much. The best of three. And the sessions of five hours: computed in twelve runs
while they arrive, beside one run over all.
""",
    goals=(_GROWN, _ARRIVING),
    run=_measure,
    quick=False,
)
