"""Generated sessions as request bodies, made once so that making them is never measured."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from tests.support.traffic import batches, generate_sessions, interleave

START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_EVENTS_PER_SESSION = 40


@dataclass(frozen=True)
class Traffic:
    """`plain` are NDJSON bodies, `packed` the same in zstd."""

    plain: list[bytes]
    packed: list[bytes]
    events: int


def make_traffic(events: int, batch: int = 100, seed: int = 11) -> Traffic:
    sessions = generate_sessions(events // _EVENTS_PER_SESSION + 200, seed, start=START)
    some = itertools.islice(interleave(sessions, concurrent=200, seed=seed), events)
    codec = pa.Codec("zstd", compression_level=3)
    plain = list(batches(some, batch))
    packed = [codec.compress(body, asbytes=True) for body in plain]
    return Traffic(plain, packed, sum(body.count(b"\n") for body in plain))


def single_events(count: int, seed: int = 13) -> Iterator[bytes]:
    """Bodies of one event each."""
    sessions = generate_sessions(count // _EVENTS_PER_SESSION + 50, seed, start=START)
    for event in itertools.islice(interleave(sessions, concurrent=50, seed=seed), count):
        yield msgspec.json.encode(event)
