"""Text that vanishes at one place and appears at another a little later has moved."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from penstock_jobs.rewards.texts.changes import Change, TooExpensive, Work
from penstock_jobs.rewards.texts.files import KnownFile, Loose, State, arrived, lost, reclaim
from penstock_jobs.rewards.texts.provenance import OTHERS
from penstock_jobs.rewards.texts.trail import SECOND

#: Text that vanishes and appears again so soon, or within the same turn, has moved.
MOVE_US = 60 * SECOND
#: How many stretches are looked through for where moved text came from: the latest.
REMEMBERED = 32


class Moves:
    """What vanished and what appeared lately in a session's files."""

    def __init__(
        self,
        files: Mapping[str, KnownFile],
        turns_us: Sequence[int],
        ink_min: int,
        work: Work,
    ) -> None:
        self._files = files
        self._turns = turns_us
        self._ink_min = ink_min
        self._work = work
        # (when, who took it, what); (when, where, the file after it, by which change).
        self._lost: list[tuple[int, int, Loose]] = []
        self._arrived: list[tuple[int, str, State, Change | None]] = []

    def vanish(self, ts: int, state: State, change: Change, taker: int) -> list[Loose]:
        """Remember the edits' text that the change took from the state; return it."""
        gone = lost(state, change, self._ink_min)
        self._lost += [(ts, taker, loose) for loose in gone]
        return gone

    def appear(self, ts: int, path: str, state: State, change: Change | None) -> None:
        """Remember that others changed the file so; without a change, it was first seen."""
        self._arrived.append((ts, path, state, change))

    def claimed(self, ts: int, state: State, change: Change | None, maker: int) -> State:
        """The state after text that vanished a little earlier was found again in what came. What
        others took away and the agent writes again is written anew."""
        self._lost = [entry for entry in self._lost[-REMEMBERED:] if self._near(entry[0], ts)]
        if not self._lost:
            return state
        for came in arrived(state, change, self._ink_min):
            for _, taker, gone in self._lost:
                if maker == OTHERS or taker != OTHERS:
                    state = self._claim(state, came, gone, maker) or state
        return state

    def claim_elsewhere(self, ts: int, path: str, gone: Loose) -> None:
        """Text that vanished here may have been seen to come to another file just before."""
        self._arrived = [entry for entry in self._arrived[-REMEMBERED:] if self._near(entry[0], ts)]
        for _, other, state, change in self._arrived:
            file = self._files.get(other)
            if other == path or file is None or file.parts[0] is not state:
                continue
            for came in arrived(state, change, self._ink_min):
                claimed = self._claim(file.parts[0], came, gone, OTHERS)
                if claimed is not None:
                    file.put(0, claimed)

    def _claim(self, state: State, came: Loose, gone: Loose, maker: int) -> State | None:
        try:
            return reclaim(state, came, gone, ink_min=self._ink_min, work=self._work, maker=maker)
        except TooExpensive:
            return None

    def _near(self, earlier: int, later: int) -> bool:
        if later - earlier <= MOVE_US:
            return True
        return bool(self._turns) and self._turn(earlier) == self._turn(later)

    def _turn(self, ts: int) -> int:
        return bisect_right(self._turns, ts)
