"""How long events wait until the lake has them, as the database tells any process."""

from pathlib import Path

from penstock.clock import SECOND_US
from penstock.lake.calls import seconds_until_stored
from tests.support.lakes import hand_lake, make_event


def test_the_wait_of_a_commit_is_that_of_its_oldest_event(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        assert seconds_until_stored(lake.lake, 0) == []
        lake.store([make_event("s", 1)])
        [wait_s] = seconds_until_stored(lake.lake, 0)
        assert wait_s >= 0
        far_us = 4_000_000_000 * SECOND_US
        assert seconds_until_stored(lake.lake, far_us) == []
