"""Whose events are written when, and how many files that makes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.frames import Frame, FrameHeader
from penstock.ingest import flush
from penstock.ingest.flush import Waiting, choose_due, wait_seconds
from penstock.ingest.settings import IngestSettings

LIMITS = IngestSettings(flush_rows_max=100, flush_bytes_max=1000, flush_seconds_max=2.0)
#: A day of them fits into memory.
ROOMY = IngestSettings(flush_rows_max=10**9, flush_bytes_max=10**12, flush_seconds_max=2.0)
sizes = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 30), st.integers(1, 300)))


def frame(tenant: str, rows: int = 1, size: int = 1) -> Frame:
    header = FrameHeader(kind="events", tenant=tenant, received_us=0, counts={"": rows})
    return Frame(header, b"x" * size)


def waiting_of(*frames: tuple[str, int, int], since_s: float = 0.0) -> Waiting:
    waiting = Waiting()
    for offset, (tenant, rows, size) in enumerate(frames):
        waiting.add(frame(tenant, rows, size), offset, since_s)
    return waiting


def test_each_limit_alone_is_enough() -> None:
    assert choose_due(waiting_of(("a", 100, 1)), LIMITS, 0) == ["a"]
    assert choose_due(waiting_of(("a", 1, 1000)), LIMITS, 0) == ["a"]
    assert choose_due(waiting_of(("a", 1, 1)), LIMITS, 2.0) == ["a"]


def test_few_tenants_are_written_together_and_wait_no_longer_than_each_alone() -> None:
    waiting = waiting_of(("a", 1, 1))
    waiting.add(frame("b"), 1, 1.9)
    assert choose_due(waiting, LIMITS, 1.9) == []
    assert choose_due(waiting, LIMITS, 2.0) == ["a", "b"]


@given(sizes)
def test_when_memory_is_full_the_largest_go_until_half_is_free(
    frames: list[tuple[str, int, int]],
) -> None:
    waiting = waiting_of(*frames)
    due = choose_due(waiting, LIMITS, 0)
    full = waiting.rows >= LIMITS.flush_rows_max or waiting.size >= LIMITS.flush_bytes_max
    assert bool(due) == full
    if due:
        smallest = min(waiting.tenants[tenant].size for tenant in due)
        rows, size = waiting.rows, waiting.size
        waiting.remove(due)
        assert 2 * waiting.rows <= rows
        assert 2 * waiting.size <= size
        assert all(left.size <= smallest for left in waiting.tenants.values())


def test_who_is_not_worth_a_file_is_let_go_of_when_memory_is_full() -> None:
    limits = IngestSettings(flush_rows_max=10**6, flush_bytes_max=1000, flush_seconds_max=100.0)
    waiting = waiting_of(*((f"t{number}", 1, 10) for number in range(100)))
    assert choose_due(waiting, limits, 0) == []
    waiting.free_memory()
    assert (waiting.rows, waiting.size) == (0, 0)
    assert choose_due(waiting, limits, 0) == []
    waiting.add(frame("t7", size=239), 100, 0)
    assert choose_due(waiting, limits, 0) == []
    waiting.add(frame("t7", size=1), 101, 0)
    assert choose_due(waiting, limits, 0) == ["t7"]
    waiting.remove(["t7"])
    waiting.add(frame("new", size=20), 102, 0)
    assert waiting.size == 20
    due = choose_due(waiting, limits, 100)
    assert due[:2] == ["t0", "t1"]
    assert sum(waiting.tenants[tenant].size for tenant in due) <= 1000


@given(sizes, st.sets(st.sampled_from("abcdefgh")))
def test_what_waits_is_counted_right(frames: list[tuple[str, int, int]], chosen: set[str]) -> None:
    waiting = waiting_of(*frames)
    waiting.remove(chosen & waiting.tenants.keys())
    left = [(tenant, rows, size) for tenant, rows, size in frames if tenant not in chosen]
    assert waiting.rows == sum(rows for _, rows, _ in left)
    assert waiting.size == sum(size for _, _, size in left)
    first = next((n for n, (tenant, *_) in enumerate(frames) if tenant not in chosen), None)
    assert (first is None) == (waiting.first() is None)
    assert first is None or waiting.first() == waiting.tenants[frames[first][0]]


@pytest.mark.parametrize("tenants", [1, 10, 500])
@pytest.mark.parametrize("files_per_second", [0.5, 7.0, 50.0])
@pytest.mark.parametrize("partitions", [1, 3])
def test_files_a_second_are_bounded_whatever_the_number_of_tenants(
    tenants: int, files_per_second: float, partitions: int
) -> None:
    """Each tenant sends whenever one looks."""
    limits = IngestSettings(
        flush_rows_max=10**9,
        flush_bytes_max=10**12,
        flush_seconds_max=2.0,
        flush_files_per_second_max=files_per_second,
    )
    waiting, written = Waiting(), Counter[str]()
    longest_s = 0.0
    seconds = 4 * wait_seconds(limits, tenants, partitions)
    steps = 40
    for step in range(steps):
        now_s = step * seconds / steps
        for number in range(tenants):
            waiting.add(frame(str(number)), step, now_s)
        while due := choose_due(waiting, limits, now_s, partitions):
            longest_s = max(longest_s, now_s - waiting.tenants[due[0]].since_s)
            written.update(due)
            waiting.remove(due)
    share = files_per_second / partitions
    assert written.total() <= share * seconds + tenants
    assert longest_s <= wait_seconds(limits, tenants, partitions) + 2 * seconds / steps
    assert len(written) == tenants


def test_nobody_keeps_the_log_from_being_trimmed_for_more_than_so_many_bytes() -> None:
    """However long it may wait."""
    waiting = waiting_of(("small", 1, 1))
    for number in range(1000):
        waiting.add(frame(f"t{number}"), 1, 0.0)
    assert choose_due(waiting, ROOMY, 1.0) == []
    waiting.read = flush.BEHIND_BYTES_MAX
    due = choose_due(waiting, ROOMY, 1.0)
    assert due[0] == "small"
    assert len(due) == flush.FILES_PER_COMMIT_MAX
