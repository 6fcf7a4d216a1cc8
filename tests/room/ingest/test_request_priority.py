"""While requests are worked on, a flush takes breaks; they end, and what waits is stored."""

from pathlib import Path

import pytest

from penstock.ingest.work_turns import RequestPriority
from tests.support.lakes import hand_lake, make_event

_LONG_S = 3600.0


def test_requests_without_an_end_take_one_break_of_a_flush() -> None:
    way = RequestPriority()
    with way.of_request(), way.of_flush() as pause:
        way.left_s = 0.001
        pause()
        assert way.left_s == 0


def test_requests_are_worked_on_until_the_last_has_ended() -> None:
    way = RequestPriority()
    with way.of_flush() as pause:
        way.left_s = _LONG_S
        with way.of_request():
            with pytest.raises(RuntimeError), way.of_request():
                raise RuntimeError
            pause()
            assert way.left_s == 0
        way.left_s = _LONG_S
        pause()
        assert way.left_s == _LONG_S


def test_a_flush_that_follows_the_last_at_once_has_no_breaks() -> None:
    """So a writer that is never done falls no further behind."""
    way = RequestPriority()
    way._flushed_s += _LONG_S  # later than now: no rest at all
    with way.of_flush() as pause, way.of_request():
        assert way.left_s < 0
        pause()
    with way.of_flush():
        assert way.left_s >= 0


def test_a_flush_beside_requests_stores_everything(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        writer = lake.partition_writer("w")
        with writer._parts.request_priority.of_request():
            lake.send([make_event("s", number) for number in range(50)])
            for _ in range(100):
                writer.step()
                lake.clock.advance(1)
        assert lake.stored().total() == 50
