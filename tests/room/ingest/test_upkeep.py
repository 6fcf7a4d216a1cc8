"""Upkeep of several processes on one lake: one does it at a time."""

import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from penstock.core.metrics import Metrics
from penstock.lake.lake import Lake
from penstock.lake.upkeep.rounds import Upkeep, UpkeepJob, upkeep_lease
from tests.support.lakes import hand_lake
from tests.support.waiting import eventually

_ROUNDS = 5


class Watch:
    """A job that sees when another is under way."""

    def __init__(self) -> None:
        self.rounds: dict[str, int] = {}
        self.at_once_max = 0
        self._now = 0
        self._mutex = threading.Lock()

    def jobs_of(self, name: str) -> dict[str, UpkeepJob]:
        def job(_lake: Lake, _metrics: Metrics) -> None:
            with self._mutex:
                self._now += 1
                self.at_once_max = max(self.at_once_max, self._now)
            threading.Event().wait(0.01)  # long enough for another to come in
            with self._mutex:
                self._now -= 1
                self.rounds[name] = self.rounds.get(name, 0) + 1

        return {"watch": job}


@pytest.mark.usefixtures("each_database")
def test_upkeep_is_never_done_twice_at_once(tmp_path: Path) -> None:
    watch = Watch()
    names = ["a", "b", "c"]
    with ExitStack() as stack:
        for name in names:
            # Each has a database of its own, as in a process of its own.
            lake = stack.enter_context(hand_lake(tmp_path, upkeep_seconds=0.01)).lake
            upkeep = Upkeep(lake, Metrics(), partial(watch.jobs_of, name))
            upkeep.start()
            stack.callback(upkeep.stop)
        eventually(lambda: len(watch.rounds) == 3 and min(watch.rounds.values()) >= _ROUNDS, 300)
        assert upkeep.problems() == []
    assert watch.at_once_max == 1


@pytest.mark.usefixtures("each_database")
def test_who_asks_by_hand_waits_for_the_round_of_another(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as hand, hand_lake(tmp_path) as other:
        with upkeep_lease(hand.lake) as mine, upkeep_lease(other.lake) as theirs:
            assert (mine, theirs) == (True, False)
        with upkeep_lease(other.lake) as theirs:
            assert theirs
