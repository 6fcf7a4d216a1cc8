"""The threads of the writer and of upkeep live on whatever happens, and say what is wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.clock import SystemClock
from penstock.core.metrics import Metrics
from penstock.ingest import writer
from penstock.ingest.partition_writer import LogTruncated
from penstock.ingest.writer import Writer
from penstock.lake import CompactionConflict, LakeDamaged
from penstock.lake.lake import Lake
from penstock.lake.upkeep.rounds import Upkeep, UpkeepJob, upkeep_jobs
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("each_database")


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS_MAX", 0.1)


@contextmanager
def running(data: Path, point: Callable[[str], None], **limits: object) -> Iterator[HandLake]:
    """A lake whose writer's thread runs; `point` may raise."""
    with hand_lake(data, flush_seconds_max=0, **limits) as lake:
        lake.clock = SystemClock()  # type: ignore[assignment]
        lake.running = writer = lake.writer(point)  # type: ignore[attr-defined]
        writer.start()
        try:
            yield lake
        finally:
            assert writer.stop()


def state(lake: HandLake) -> str | None:
    writer: Writer = lake.running  # type: ignore[attr-defined]
    return writer.problem


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError()])
def test_an_error_of_any_type_is_shown_and_the_writer_goes_on(
    tmp_path: Path, error: Exception
) -> None:
    failing = [True]

    def point(_where: str) -> None:
        if failing[0]:
            raise error

    with running(tmp_path, point) as lake:
        lake.send([make_event("s", 1)])
        eventually(lambda: state(lake))
        assert type(error).__name__ in str(state(lake))
        failing[0] = False
        eventually(lambda: state(lake) is None and lake.stored())
        lake.send([make_event("s", 2)])
        eventually(lambda: len(lake.stored()) == 2)
        assert lake.metrics.value("writer_failures_total") >= 1


def test_lag_is_told_also_while_nothing_can_be_stored(tmp_path: Path) -> None:
    def point(_where: str) -> None:
        raise KeyError

    with running(tmp_path, point) as lake:

        def lag() -> float:
            return lake.metrics.value("log_lag_bytes", partition="0")

        lake.send([make_event("s", 1)])
        eventually(lambda: lag() > 100)
        before = lag()
        lake.send([make_event("s", 2)])
        eventually(lambda: lag() > before)


def test_what_needs_a_person_stops_the_writer_and_is_said(tmp_path: Path) -> None:
    def point(_where: str) -> None:
        raise LogTruncated(partition=0, end=1, covered=2)

    with running(tmp_path, point) as lake:
        lake.send([make_event("s", 1)])
        eventually(lambda: lake.metrics.value("writer_stopped") == 1)
        assert "the log was truncated" in str(state(lake))
        assert lake.stored() == {}
        lake.send([make_event("s", 2)])  # what comes is still taken
    with hand_lake(tmp_path) as lake:
        lake.store()
        assert len(lake.stored()) == 2


def test_a_writer_in_waiting_rests_and_takes_over_when_the_other_ends(tmp_path: Path) -> None:
    """Without a partition it must not spin; with the other gone it must not wait for a lease."""
    with hand_lake(tmp_path) as first:
        first.store([make_event("s", 1)])
        with running(tmp_path, lambda _where: None) as second:
            tries = [0]
            hold = second.lake.log.hold

            def counted(partition: int) -> object:
                tries[0] += 1
                return hold(partition)

            second.lake.log.hold = counted  # type: ignore[method-assign, assignment]
            eventually(lambda: tries[0] >= 2)
            assert tries[0] < 20
            assert state(second) is None
            second.send([make_event("s", 2)])
            first.lake.close()
            eventually(lambda: len(second.stored()) == 2)


def test_draining_ends_in_time_and_the_rest_waits_in_the_log(tmp_path: Path) -> None:
    with hand_lake(tmp_path, flush_bytes_max=1) as lake:
        for number in range(20):
            lake.send([make_event("s", number)])
        lake.writer(lambda where: lake.clock.advance(1 if where == "committed" else 0)).drain(5)
        assert 0 < len(lake.stored()) < 20
        lake.store()
        assert len(lake.stored()) == 20


def test_a_drain_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    """What it remembered of events that it did not commit is forgotten."""
    points: list[str] = []

    def fail_once(where: str) -> None:
        points.append(where)
        if points == ["intent written"]:
            raise OSError("no space")

    with hand_lake(tmp_path) as lake:
        lake.send([make_event("s", 1)])
        writer = lake.writer(fail_once)
        with pytest.raises(OSError, match="no space"):
            writer.drain()
        writer.drain()
        assert lake.stored() == {("default", "s", "e1"): 1}


def test_draining_makes_full_segments(lake: HandLake) -> None:
    for number in range(300):
        lake.send([make_event("s", number, payload={"text": "x" * 20_000})])
    commits: list[str] = []
    lake.writer(commits.append).drain()
    assert commits.count("committed") == 1


# Upkeep


@pytest.fixture
def upkeep_of(tmp_path: Path) -> Iterator[Callable[[Callable[[], dict[str, UpkeepJob]]], Upkeep]]:
    started: list[Upkeep] = []
    with hand_lake(tmp_path, upkeep_seconds=0.01) as lake:

        def start(find_jobs: Callable[[], dict[str, UpkeepJob]]) -> Upkeep:
            started.append(Upkeep(lake.lake, lake.metrics, find_jobs))
            started[-1].start()
            return started[-1]

        yield start
        for one in started:
            one.stop()


def test_all_jobs_are_found() -> None:
    jobs = {"compaction", "summaries", "collection", "rejected", "shards", "retention", "iceberg"}
    assert set(upkeep_jobs()) == jobs


@pytest.mark.parametrize("error", [KeyError("x"), LakeDamaged(path="one", why="it is cut")])
def test_a_job_that_fails_is_shown_and_keeps_no_other_from_running(
    upkeep_of: Callable[[Callable[[], dict[str, UpkeepJob]]], Upkeep], error: Exception
) -> None:
    failing, ran = [True], [0]

    def bad(_lake: Lake, _metrics: Metrics) -> str | None:
        if failing[0]:
            raise error
        return None

    def good(_lake: Lake, _metrics: Metrics) -> str | None:
        ran[0] += 1
        return "something"

    upkeep = upkeep_of(lambda: {"bad": bad, "good": good})
    eventually(lambda: ran[0] >= 3)
    [problem] = upkeep.problems()
    assert "(bad) failed" in problem
    failing[0] = False
    eventually(lambda: not upkeep.problems())


def test_jobs_that_cannot_even_be_loaded_are_shown(
    upkeep_of: Callable[[Callable[[], dict[str, UpkeepJob]]], Upkeep],
) -> None:
    def broken() -> dict[str, UpkeepJob]:
        raise ImportError("no module named penstock_jobs")

    upkeep = upkeep_of(broken)
    eventually(lambda: "penstock_jobs" in "".join(upkeep.problems()))


def test_a_merge_that_lost_a_race_is_no_problem(
    upkeep_of: Callable[[Callable[[], dict[str, UpkeepJob]]], Upkeep],
) -> None:
    ran = [0]

    def beaten(_lake: Lake, _metrics: Metrics) -> str | None:
        ran[0] += 1
        raise CompactionConflict

    upkeep = upkeep_of(lambda: {"beaten": beaten})
    eventually(lambda: ran[0] >= 3)
    assert upkeep.problems() == []


def test_who_has_read_all_looks_again_only_after_a_pause(lake: HandLake) -> None:
    text = "x" * 100_000
    lake.send([make_event("s", n, payload={"text": text}) for n in range(30)])
    writer = lake.partition_writer("owner")
    [end] = lake.lake.log.ends()
    writer.step(end=end)
    assert writer.behind
    writer.step(end=end)
    assert not writer.behind
    writer.release()
