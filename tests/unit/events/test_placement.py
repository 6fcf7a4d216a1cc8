"""Sessions stay where Kafka's own clients put them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_the_client

from penstock.events.frames import murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_that_kafka_publishes(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_the_hash_is_that_of_the_client(data: bytes) -> None:
    assert murmur2(data) == murmur2_of_the_client(data) & 0xFFFFFFFF


@pytest.mark.parametrize(("session", "partition"), [("s-1", 895), ("s-2", 595), ("é", 271)])
def test_partitions_never_change(session: str, partition: int) -> None:
    """A session's events stay in one partition, or its repeats could not be told."""
    assert partition_of(session, 1000) == partition
