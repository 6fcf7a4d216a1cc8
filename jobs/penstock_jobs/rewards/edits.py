"""From one score per edit and horizon to the rows of a reward: edit, then file and turn, then
session.

A file or turn is the mean of its edits' values, weighted by their weights; a session is the mean
of its turns, each as heavy as its edits together. As long as any part is pending, so is the whole.
Else it is scored over the parts that are; else it has the commonest state and reason of its parts.
Where all scored parts weigh nothing, each counts the same.
A checkpoint is named where all edits of the target have the same.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock_jobs.rewards.rows import REWARD_ROWS, Bucket, Parameters
from penstock_jobs.rewards.texts.changes import TooExpensive, Work
from penstock_jobs.rewards.texts.similarity import code_units
from penstock_jobs.rewards.texts.survival import returned
from penstock_jobs.rewards.texts.trail import Seen, TrackedEdit, Trail

_INVALID = ("too_expensive", "nothing_written")


class Score(NamedTuple):
    """Without a value, `reason` says why: censored, or invalid if it is one of _INVALID."""

    value: float | None
    reason: str | None = None


class Part(NamedTuple):
    value: float | None
    state: str
    reason: str | None
    weight: float


#: The value of an edit as it was seen.
Scorer = Callable[[TrackedEdit, Seen], Score]
#: How many characters an edit stands for.
Sizer = Callable[[TrackedEdit], int]

_Row = tuple[str, str, str, str, int, float | None, str, str | None, float, str | None]


def score_edits(
    name: str, bucket: Bucket, parameters: Parameters, score: Scorer, size: Sizer
) -> pa.Table:
    """The reward of all edits of a bucket, of their files, turns and sessions."""
    rows: list[_Row] = []
    for trail in bucket.trails(parameters):
        rows += _session_rows(name, trail, parameters, score, size)
    columns = list(zip(*rows, strict=True)) or [()] * len(REWARD_ROWS)
    arrays = [
        pa.array(values, kind) for values, kind in zip(columns, REWARD_ROWS.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=REWARD_ROWS)


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


def combined(parts: Sequence[Part]) -> Part:
    """The weighted mean of parts, or why there is none."""
    if len(parts) == 1:
        return parts[0]
    weight = mean = total = 0.0
    scored: list[float] = []
    for value, state, _, each in parts:
        if state == "pending":
            return Part(None, "pending", None, sum(part.weight for part in parts))
        total += each
        if value is not None:
            scored.append(value)
            weight += each
            mean += each * value
    if weight:
        return Part(mean / weight, "scored", None, weight)
    if scored:
        return Part(sum(scored) / len(scored), "scored", None, 0.0)
    counts = Counter((part.state, part.reason) for part in parts)
    state, reason = min(counts, key=lambda key: (-counts[key], str(key)))
    return Part(None, state, reason, total)


def _session_rows(
    name: str, trail: Trail, parameters: Parameters, score: Scorer, size: Sizer
) -> Iterator[_Row]:
    parts = [_parts(edit, score, size(edit) ** parameters.weight_exponent) for edit in trail.edits]
    files: dict[str, list[int]] = {}
    turns: dict[str, list[int]] = {}
    for at, edit in enumerate(trail.edits):
        files.setdefault(edit.path or "", []).append(at)
        turns.setdefault(str(edit.turn), []).append(at)
    checkpoints = [edit.checkpoint for edit in trail.edits]
    of_files = [_only([checkpoints[at] for at in members]) for members in files.values()]
    of_turns = [_only([checkpoints[at] for at in members]) for members in turns.values()]
    of_session = _only(checkpoints)
    session = trail.session_id
    for number, horizon in enumerate(parameters.horizons_s):
        now = [each[number] for each in parts]
        for edit, part in zip(trail.edits, now, strict=True):
            yield (session, "edit", edit.target_id, name, horizon, *part, edit.checkpoint)
        for (path, members), one in zip(files.items(), of_files, strict=True):
            whole = combined([now[at] for at in members])
            yield (session, "file", path, name, horizon, *whole, one)
        means = []
        for (turn, members), one in zip(turns.items(), of_turns, strict=True):
            whole = combined([now[at] for at in members])
            means.append(whole)
            yield (session, "turn", turn, name, horizon, *whole, one)
        yield (session, "session", session, name, horizon, *combined(means), of_session)


def _parts(edit: TrackedEdit, score: Scorer, weight: float) -> list[Part]:
    parts: list[Part] = []
    last: Seen | None = None
    for seen in edit.seen:
        if last is not None and seen == last:
            parts.append(parts[-1])
            continue
        last = seen
        if seen.state != "scored":
            parts.append(Part(None, seen.state, seen.reason, weight))
            continue
        value, reason = score(edit, seen)
        state = "scored"
        if value is None:
            state = "invalid" if reason in _INVALID else "censored"
        parts.append(Part(value, state, reason, weight))
    return parts


def _only(values: Sequence[str | None]) -> str | None:
    """What all say, if all say the same."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
