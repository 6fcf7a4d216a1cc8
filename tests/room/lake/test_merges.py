"""Which segments are merged: a plan without surprises; and what a merge keeps."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.metrics import Metrics
from penstock.lake import LakeDamaged
from penstock.lake.catalog import Segment, create_snapshot, current
from penstock.lake.upkeep import merges
from penstock.lake.upkeep import rounds as upkeep
from penstock.lake.upkeep.merges import SEGMENTS_MAX, TIER_FACTOR, choose_merges
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import HandLake, hand_lake, make_event

TARGET = 10_000


def live(sizes: list[tuple[int, int]]) -> list[Segment]:
    """Segments of (partition, bytes)."""
    return [
        Segment(number, f"n{number}", partition, 10, size, number, "a")
        for number, (partition, size) in enumerate(sizes)
    ]


lakes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2 * TARGET)), max_size=80).map(live)


@given(lakes, st.integers(2, 10))
def test_a_plan_takes_each_segment_once_and_keeps_the_rules(
    segments: list[Segment], segments_min: int
) -> None:
    plan = choose_merges(segments, segments_min, TARGET)
    taken = Counter(one.id for group in plan for one in group)
    assert set(taken.values()) <= {1}
    for group in plan:
        assert segments_min <= len(group) <= SEGMENTS_MAX
        assert len({one.partition for one in group}) == 1
        assert sum(one.bytes for one in group) <= TARGET
        sizes = [max(one.bytes, 1) for one in group]
        assert max(sizes) < TIER_FACTOR * min(sizes) + 1
        assert max(sizes) < TARGET / TIER_FACTOR


@given(lakes)
def test_merging_again_and_again_comes_to_an_end(segments: list[Segment]) -> None:
    """And leaves few segments: fewer than the minimum a tier and partition."""
    rounds = 0
    while plan := choose_merges(segments, 4, TARGET):
        gone = {one.id for group in plan for one in group}
        merged = [
            replace(group[0], id=1000 * (rounds + 1) + n, bytes=sum(o.bytes for o in group))
            for n, group in enumerate(plan)
        ]
        segments = [one for one in segments if one.id not in gone] + merged
        rounds += 1
        assert rounds <= 80
    small = [one for one in segments if one.bytes < TARGET / TIER_FACTOR]
    assert len(small) <= 3 * 3 * 5


def test_a_row_is_rewritten_a_few_times_not_with_every_neighbour() -> None:
    """Writing amplification stays near the number of tiers, however many flushes there are."""
    segments: list[Segment] = []
    written = 0
    for number in range(2000):
        segments.append(Segment(number, "", 0, 1, 100, 0, "a"))
        for group in choose_merges(segments, 8, 1_000_000):
            gone = {one.id for one in group}
            size = sum(one.bytes for one in group)
            written += size
            segments = [one for one in segments if one.id not in gone]
            segments.append(Segment(10_000 + written, "", 0, 1, size, 0, "a"))
    assert written <= 6 * 2000 * 100
    assert len(segments) <= 50


def test_more_segments_than_can_be_open_at_once_are_merged_in_several_groups() -> None:
    plan = choose_merges(live([(0, 1)] * (2 * SEGMENTS_MAX + 5)), 2, TARGET)
    assert [len(group) for group in plan] == [SEGMENTS_MAX, SEGMENTS_MAX, 5]


SMALL_SEGMENTS = {"compaction_segments_min": 2, "collection_grace_seconds": 0}


@pytest.mark.usefixtures("each_database")
def test_a_round_merges_and_the_next_collects(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **SMALL_SEGMENTS) as lake:
        for number in range(5):
            lake.store([make_event("s", number)])
        before = contents(lake)
        assert merges.compact(lake.lake, Metrics()) == "merged 5 segments into 1"
        assert merges.compact(lake.lake, Metrics()) is None
        assert upkeep.clean_up(lake.lake, Metrics()) == "deleted 5 files that nobody needs"
        assert contents(lake) == before
        assert len(lake.files()) == 2
        assert verify(lake.lake).findings == []


@pytest.mark.usefixtures("each_database")
def test_a_damaged_segment_is_not_merged_and_does_not_keep_others_from_it(tmp_path: Path) -> None:
    """A merged segment has a checksum of its own: damage could never be found again."""
    with hand_lake(tmp_path, log_partitions=2, **SMALL_SEGMENTS) as lake:
        for number in range(6):
            lake.store([make_event(f"s{n}", number) for n in range(20)])
        first = current(lake.lake.database).segments[0]
        path = tmp_path / "lake" / first.name
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        with pytest.raises(LakeDamaged, match="checksum"):
            merges.compact(lake.lake, Metrics())
        left = Counter(one.partition for one in current(lake.lake.database).segments)
        assert left == {first.partition: 6, 1 - first.partition: 1}
        assert [finding.name for finding in verify(lake.lake).findings] == [first.name]


@pytest.mark.usefixtures("each_database")
def test_a_named_snapshot_keeps_what_was_merged(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **SMALL_SEGMENTS) as lake:
        lake.store([make_event("s", 0)])
        create_snapshot(lake.lake.database, "kept")
        lake.store([make_event("s", 1)])
        merges.compact(lake.lake, Metrics())
        upkeep.clean_up(lake.lake, Metrics())
        assert lake.rows("select count(*) as n from events", "kept") == [{"n": 1}]
        assert len(lake.files()) == 3


def contents(lake: HandLake) -> list[dict[str, object]]:
    return lake.rows("select * from events order by all") + lake.rows("select * from sessions")
