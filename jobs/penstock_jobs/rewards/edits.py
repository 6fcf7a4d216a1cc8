"""From one score per edit and horizon to the rows of a reward: edits, then files and turns, then
sessions, as `wholes` has it. A turn is as heavy in its session as its edits together. A checkpoint
is named where all edits of the target have the same.
"""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from penstock_jobs.rewards.edit_targets import EditTargets, Standing, edit_targets
from penstock_jobs.rewards.rows import REWARD_ROWS, Bucket, Parameters
from penstock_jobs.rewards.texts.changes import TooExpensive, Work
from penstock_jobs.rewards.texts.similarity import code_units
from penstock_jobs.rewards.texts.survival import returned
from penstock_jobs.rewards.texts.trail import Seen, TrackedEdit
from penstock_jobs.rewards.wholes import PENDING, Parts, Standings, wholes

_INVALID = ("too_expensive", "nothing_written")


class Score(NamedTuple):
    """Without a value, `reason` says why: censored, or invalid if it is one of _INVALID."""

    value: float | None
    reason: str | None = None

    @property
    def standing(self) -> Standing:
        if self.value is not None:
            return "scored", None
        return "invalid" if self.reason in _INVALID else "censored", self.reason


_scored: WeakKeyDictionary[Bucket, dict[tuple[str, Parameters], pa.Table]] = WeakKeyDictionary()

#: The value of an edit as it was seen.
Scorer = Callable[[TrackedEdit, Seen], Score]
#: How many characters an edit stands for.
Sizer = Callable[[TrackedEdit], int]


def score_edits(
    name: str, bucket: Bucket, parameters: Parameters, score: Scorer, size: Sizer
) -> pa.Table:
    """The reward of all edits of a bucket, of their files, turns and sessions. Asked again for the
    same, it has the answer: outcomes need one that definitions have."""
    known = _scored.setdefault(bucket, {})
    if (name, parameters) not in known:
        known[name, parameters] = _score(name, bucket, parameters, score, size)
    return known[name, parameters]


def _score(
    name: str, bucket: Bucket, parameters: Parameters, score: Scorer, size: Sizer
) -> pa.Table:
    targets = edit_targets(bucket, parameters)
    weights = [size(edit) ** parameters.weight_exponent for edit in targets.edits]
    scores = [score(edit, seen) for edit, seen in targets.looks]
    standings = Standings.of([*targets.unscored, *(one.standing for one in scores)])
    edits = _parts(targets, weights, scores, standings)
    files = wholes(edits, targets.files.of, targets.files.count)
    turns = wholes(edits, targets.turns.of, targets.turns.count)
    sessions = wholes(turns, targets.sessions.of, targets.sessions.count)
    return _table(name, targets, standings, [edits, files, turns, sessions])


def ink_size(edit: TrackedEdit) -> int:
    """Characters that the edit wrote, or took away where it only took away."""
    return edit.ink_size


def units_written(edit: TrackedEdit) -> int:
    """UTF-16 units of what the edit put in, as the published forms count."""
    return sum(len(code_units(one.after)) for one in edit.ranges)


def score_deletion(
    edit: TrackedEdit, seen: Seen, work: Work, value: Callable[[float, int], Score]
) -> Score:
    """Of an edit that only took away: from how much others brought back, and the agent itself."""
    if seen.home is None:
        return Score(None, "path_lost")
    try:
        back, own = returned(edit, seen.home, work)
    except TooExpensive:
        return Score(None, "too_expensive")
    return value(back, own)


def _parts(
    targets: EditTargets, weights: list[float], scores: list[Score], standings: Standings
) -> Parts:
    """Of edits. Behind the looks stands, by the number −1, that there is none."""
    of_looks = [np.nan if one.value is None else one.value for one in scores]
    look = targets.look
    number = standings.numbers()
    why = np.array([number[one] for one in targets.unscored] or [0])[targets.why]
    answered = np.array([*(number[one.standing] for one in scores), 0])[look]
    value = np.array([*of_looks, np.nan])[look]
    weight = np.repeat(np.array(weights, np.float64)[:, np.newaxis], look.shape[1], axis=1)
    return Parts(value, np.where(look < 0, why, answered), weight, targets.due_us)


def _table(name: str, targets: EditTargets, standings: Standings, levels: list[Parts]) -> pa.Table:
    value, standing, weight, due_us = (
        np.concatenate(columns).ravel() for columns in zip(*levels, strict=True)
    )
    numbers = pa.array(standing)
    columns = targets.columns | {
        "name": pa.repeat(pa.scalar(name), len(value)),
        "value": pa.array(value, mask=np.isnan(value)),
        "state": pa.array(standings.states).take(numbers),
        "reason": pa.array(standings.reasons, pa.string()).take(numbers),
        "weight": pa.array(weight),
        "due_us": pa.array(due_us, mask=standing != PENDING),
    }
    return pa.Table.from_arrays([columns[one] for one in REWARD_ROWS.names], schema=REWARD_ROWS)
