"""Buckets are the lake in pieces: every event in one of them, and sessions whole."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ingest import partition_writer
from penstock.lake.buckets import (
    Bucket,
    SessionId,
    SizeSample,
    cut_points,
    plan_buckets,
    read_bucket,
)
from penstock.lake.catalog import current
from penstock.lake.rows import EVENT_ROWS, RowGroupLimits
from penstock.lake.upkeep.merges import merge
from tests.support.lakes import HandLake, hand_lake, make_event

names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=3)
flushes = st.lists(
    st.tuples(names, st.lists(st.tuples(names, st.integers(0, 9)), min_size=1, max_size=12)),
    min_size=1,
    max_size=5,
)


def buckets_of(lake: HandLake) -> list[Bucket]:
    return plan_buckets(lake.lake, current(lake.lake.database))


@settings(max_examples=10)
@given(flushes, st.integers(1, 3000))
def test_every_event_is_in_one_bucket_and_sessions_are_whole(
    stored: list[tuple[str, list[tuple[str, int]]]], target: int
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryDirectory() as directory,
        hand_lake(Path(directory), bucket_bytes_target=target) as lake,
    ):
        patch.setattr(partition_writer, "ROW_GROUPS", RowGroupLimits(2, 1 << 24))
        for tenant, events in stored:
            lake.store([make_event(session, number) for session, number in events], tenant)
        found: Counter[tuple[str, str, str | None]] = Counter()
        homes: dict[tuple[str, str], int] = {}
        buckets = buckets_of(lake)
        assert buckets == buckets_of(lake)
        for bucket in buckets:
            rows = read_bucket(lake.lake, bucket)
            assert rows.schema.names == EVENT_ROWS.names
            keys = [
                (row["tenant"], row["session_id"], row["ts"], row["seq"], row["key"])
                for row in rows.to_pylist()
            ]
            assert keys == sorted(keys)
            for row in rows.to_pylist():
                found[row["tenant"], row["session_id"], row["event_id"]] += 1
                session = (row["tenant"], row["session_id"])
                assert homes.setdefault(session, bucket.number) == bucket.number
        assert found == lake.stored()


@given(st.lists(st.builds(SizeSample, st.builds(SessionId, names, names), st.floats(1, 100))))
def test_buckets_are_near_their_size_unless_a_session_is_larger(samples: list[SizeSample]) -> None:
    points = cut_points(samples, 300)
    assert points == sorted(set(points))
    sizes: Counter[int] = Counter()
    largest: Counter[SessionId] = Counter()
    for session, size in samples:
        sizes[sum(point <= session for point in points)] += size  # type: ignore[assignment]
        largest[session] += size  # type: ignore[assignment]
    for number, size in sizes.items():
        assert size <= 300 + max(largest.values())
        if number < len(points):
            assert size > 0


def test_a_bucket_is_the_same_after_a_merge(lake: HandLake) -> None:
    """Its rows and their order do not depend on files: events of one time are told by key."""
    for number in range(4):
        event = make_event("s", 1, event_id=f"e{number}")
        lake.store([event, make_event("t", number)])
    [before] = buckets_of(lake)
    rows = read_bucket(lake.lake, before)
    merge(lake.lake, current(lake.lake.database).segments)
    [after] = buckets_of(lake)
    assert before.segments != after.segments
    assert read_bucket(lake.lake, after) == rows


def test_a_bucket_opens_only_what_may_hold_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hand_lake(tmp_path, bucket_bytes_target=1) as lake:
        for letter in "abc":
            lake.store([make_event(f"{letter}{n}", n) for n in range(3)])
        buckets = buckets_of(lake)
        assert [len(one.segments) for one in buckets] == [1] * 9
        opened: list[str] = []
        open_ = lake.lake.store.open

        def note(name: str) -> object:
            opened.append(name)
            return open_(name)

        monkeypatch.setattr(lake.lake.store, "open", note)
        assert read_bucket(lake.lake, buckets[4], ["session_id"]).to_pylist() == [
            {"session_id": "b1"}
        ]
        assert opened == list(buckets[4].segments)


def test_rows_carry_the_consent_that_is_known_now(lake: HandLake) -> None:
    lake.store([make_event(session, 1) for session in ("a", "b", "c")])
    lake.store([make_event("b", 2, "session_start", payload={"consent": "no_train"})])
    [bucket] = buckets_of(lake)
    rows = read_bucket(lake.lake, bucket, ["consent", "session_id"]).to_pylist()
    told = [(row["session_id"], row["consent"]) for row in rows]
    no = ("b", "no_train")
    assert told == [("a", "unknown"), no, no, ("c", "unknown")]
