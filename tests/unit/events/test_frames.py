"""Frames hold what was judged, in their partitions and within the log's limits."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.frames import (
    Frame,
    FrameDecoder,
    decode_frame,
    decode_rejected,
    encode_frame,
    encode_unjudged,
    encode_values,
    pack,
    partition_of,
    repartition,
)
from penstock.events.validation import validate_lines

ARRIVALS = FrameDecoder(partitions=4, event_bytes_max=10_000, rejected_line_bytes_max=100)


def line(session: str, source: str | None = None, text: str = "") -> bytes:
    event = {"session_id": session, "ts": 1_795_219_200_000_000, "type": "user_message"}
    event |= {"source": source} if source else {}
    return json.dumps(event | {"payload": {"text": text}}).encode()


def packed(lines: list[bytes], partitions: int) -> list[tuple[int, Frame]]:
    return list(pack(validate_lines(lines, 1, 10_000), "acme", 7, partitions, 100))


def sessions_of(frame: Frame) -> list[str]:
    return [json.loads(one)["session_id"] for one in frame.body.split(b"\n")]


SESSIONS = st.lists(st.sampled_from([f"s-{number}" for number in range(20)]), min_size=1)


@given(SESSIONS, st.integers(1, 6))
def test_every_event_is_in_the_partition_of_its_session(
    sessions: list[str], partitions: int
) -> None:
    frames = packed([line(one, f"by-{one}") for one in sessions], partitions)
    assert len({partition for partition, _ in frames}) == len(frames)
    for partition, frame in frames:
        found = sessions_of(frame)
        assert {partition_of(one, partitions) for one in found} == {partition}
        assert frame.header.counts == Counter(f"by-{one}" for one in found)
        assert found == [one for one in sessions if one in found]  # in order
    assert sum(len(sessions_of(frame)) for _, frame in frames) == len(sessions)


@given(SESSIONS, st.integers(1, 6), st.integers(1, 6))
def test_placed_again_is_as_placed_at_once(sessions: list[str], before: int, now: int) -> None:
    lines = [line(one, f"by-{one}") for one in sessions]
    at_once = {partition: Counter(frame.header.counts) for partition, frame in packed(lines, now)}
    again: dict[int, Counter[str]] = {}
    for found, frame in packed(lines, before):
        for partition, moved in repartition(frame, found, now):
            assert moved.header.partitions == now
            assert Counter(f"by-{one}" for one in sessions_of(moved)) == moved.header.counts
            again.setdefault(partition, Counter()).update(moved.header.counts)
    assert again == at_once


@pytest.mark.parametrize("bad", [b"{}", b"", b"\xff", b'{"session_id": 1}', b"[" * 100_000])
def test_a_line_that_cannot_be_read_stays_and_costs_its_neighbours_nothing(bad: bytes) -> None:
    [(_, frame)] = packed([line("s-1"), line("s-2")], 1)
    frame.body = b"\n".join([line("s-1"), bad, line("s-2")])
    placed = list(repartition(frame, 3, 4))
    assert sorted(one for _, frame in placed[:-1] for one in sessions_of(frame)) == ["s-1", "s-2"]
    assert placed[-1][0] == 3
    assert placed[-1][1].body == bad


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30), st.integers(4096, 20_000))
def test_no_value_is_larger_than_the_log_takes(sizes: list[int], bytes_max: int) -> None:
    lines = [line(f"s-{size}", f"by-{size}", "x" * size) for size in sizes]
    [(_, frame)] = packed(lines, 1)
    values = encode_values(frame, bytes_max)
    assert max(map(len, values)) <= bytes_max
    frames = [decode_frame(value) for value in values]
    assert b"\n".join(one.body for one in frames) == b"\n".join(lines)
    for one in frames:
        found = Counter(json.loads(line)["source"] for line in one.body.split(b"\n"))
        assert one.header.counts == found


def test_refused_lines_are_divided_too() -> None:
    [(partition, frame)] = packed([b"?%d" % number for number in range(1000)], 4)
    values = encode_values(frame, 5000)
    assert partition == 0
    assert max(map(len, values)) <= 5000
    frames = [decode_frame(value) for value in values]
    assert [one.line for frame in frames for one in decode_rejected(frame.body)] == [
        *range(1, 1001)
    ]
    assert sum(sum(frame.header.counts.values()) for frame in frames) == 1000


def test_a_frame_of_the_same_shape_is_believed() -> None:
    for partition, frame in packed([line(f"s-{number}") for number in range(20)], 4):
        assert list(ARRIVALS.placed(encode_frame(frame), partition)) == [(partition, frame)]


@given(SESSIONS)
def test_lines_past_the_gateway_are_judged_and_placed_like_its_own(sessions: list[str]) -> None:
    lines = [*(line(one) for one in sessions), b"?"]
    value = encode_unjudged(b"\n".join(lines), "acme", 7, 1)
    assert list(ARRIVALS.placed(value, 2)) == packed(lines, 4)
    assert list(ARRIVALS.frames(value)) == [frame for _, frame in packed(lines, 4)]


@given(st.binary(max_size=300))
def test_no_value_raises(value: bytes) -> None:
    for _, frame in ARRIVALS.placed(value, 1):
        assert frame.header.kind == "rejected"
