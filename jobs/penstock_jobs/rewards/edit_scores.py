"""Rows of a reward from one score per edit and horizon: for edits, files, turns and sessions.

A whole is the weighted mean of its scored parts, or their plain mean if all weights are 0. It is
pending while any part is. Without scored parts it has their most common state and reason.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.rows import REWARD_ROWS, TargetKind
from penstock_jobs.rewards.texts.changes import TooExpensive
from penstock_jobs.rewards.texts.trail import HorizonState, TrackedEdit

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
StateReason = tuple[str, str | None]

_INVALID = ("too_expensive", "nothing_written")
#: The first two states, by their number.
SCORED, PENDING = 0, 1
#: The due time of targets that are not pending.
NOT_DUE = np.iinfo(np.int64).min


class EditScore(NamedTuple):
    """The score of an edit.

    Without a value, it is invalid for reasons in _INVALID, else censored."""

    value: float | None
    reason: str | None = None
    #: The share of the edit that the value covers; it scales the weight.
    weighs: float = 1.0

    @property
    def state_reason(self) -> StateReason:
        if self.value is not None:
            return "scored", None
        return "invalid" if self.reason in _INVALID else "censored", self.reason


Scorer = Callable[[TrackedEdit, HorizonState], EditScore]
Sizer = Callable[[TrackedEdit], int]


def score_edits(
    name: str, bucket: Bucket, parameters: EditParameters, score: Scorer, size: Sizer
) -> pa.Table:

    def attempt(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        try:
            return score(edit, at_horizon)
        except TooExpensive:
            return EditScore(None, "too_expensive")

    def rows() -> pa.Table:
        key = ("targets", parameters.terms())
        targets = bucket.once(key, lambda: _found_targets(bucket, parameters))
        exponent = parameters.weight_exponent
        weights = [size(edit) ** exponent for edit in targets.edits]
        scores = [attempt(edit, at_horizon) for edit, at_horizon in targets.answers]
        shares = np.array([*(score.weighs for score in scores), 1.0]) ** exponent
        weight = np.array(weights, np.float64)[:, np.newaxis] * shares[targets.answer]
        return _reward_rows(name, targets, weight, scores)

    return bucket.once((name, parameters), rows)


def _reward_rows(
    name: str, targets: "EditTargets", weight: Floats, scores: list[EditScore]
) -> pa.Table:
    number = state_numbers([*targets.unscored, *(score.state_reason for score in scores)])
    # The last place, index −1, stands for an unanswered horizon, here and in `score_edits`.
    values = [np.nan if score.value is None else score.value for score in scores]
    value = np.array([*values, np.nan])[targets.answer]
    answered = np.array([*(number[score.state_reason] for score in scores), 0])[targets.answer]
    unanswered = np.array([number[why] for why in targets.unscored] or [0])[targets.why]
    state_reason = np.where(targets.answer < 0, unanswered, answered)
    edits = TargetScores(value, state_reason, weight, targets.due_us)
    _, of_files, of_turns, of_sessions = targets.groups
    files = wholes(edits, of_files.of, len(of_files.ids))
    turns = wholes(edits, of_turns.of, len(of_turns.ids))
    sessions = wholes(turns, of_sessions.of, len(of_sessions.ids))
    return _rows(name, targets.columns, number, (edits, files, turns, sessions))


def _rows(
    name: str,
    columns: dict[str, pa.Array],
    number: dict[StateReason, int],
    kinds: Iterable["TargetScores"],
) -> pa.Table:
    states, reasons = zip(*number, strict=True)
    value, state_reason, weight, due_us = (
        np.concatenate(column).ravel() for column in zip(*kinds, strict=True)
    )
    numbers = pa.array(state_reason)
    columns = columns | {
        "name": pa.repeat(pa.scalar(name), len(value)),
        "value": pa.array(value, mask=np.isnan(value)),
        "state": pa.array(states).take(numbers),
        "reason": pa.array(reasons, pa.string()).take(numbers),
        "weight": pa.array(weight),
        "due_us": pa.array(due_us, mask=state_reason != PENDING),
    }
    return pa.Table.from_arrays([columns[field] for field in REWARD_ROWS.names], schema=REWARD_ROWS)


class TargetGroup(NamedTuple):
    """Targets of a kind. `of` is the number of each part's target."""

    kind: TargetKind
    sessions: list[str]
    ids: list[str]
    checkpoints: list[str | None]
    of: Numbers


@dataclass(frozen=True, eq=False)
class EditTargets:
    edits: list[TrackedEdit]
    answers: list[tuple[TrackedEdit, HorizonState]]
    #: The number of the answer for each edit and horizon; −1 for none.
    answer: Numbers
    #: Reasons without an answer, and the number of the reason for each edit and horizon.
    unscored: list[StateReason]
    why: Numbers
    due_us: Numbers
    groups: list[TargetGroup]
    horizons_s: tuple[int, ...]
    columns: dict[str, pa.Array]


def _found_targets(bucket: Bucket, parameters: EditParameters) -> EditTargets:
    trails = bucket.trails(parameters)
    edits = [edit for trail in trails.values() for edit in trail]
    sessions = [session for session, trail in trails.items() for _ in trail]
    checkpoints = [edit.checkpoint for edit in edits]
    ids = [edit.target_id for edit in edits]
    groups = [
        TargetGroup("edit", sessions, ids, checkpoints, np.arange(len(edits))),
        _grouped("file", sessions, [edit.path or "" for edit in edits], checkpoints),
        turns := _grouped("turn", sessions, [str(edit.turn) for edit in edits], checkpoints),
        _grouped("session", turns.sessions, turns.sessions, turns.checkpoints),
    ]
    answers: list[tuple[TrackedEdit, HorizonState]] = []
    unscored: dict[StateReason, int] = {}
    rows: list[tuple[int, int, int]] = []
    for edit in edits:
        last: HorizonState | None = None
        for at_horizon in edit.horizon_states:
            if at_horizon.state != "scored":
                why = unscored.setdefault((at_horizon.state, at_horizon.reason), len(unscored))
                rows.append((-1, why, NOT_DUE if at_horizon.due_us is None else at_horizon.due_us))
                continue
            if at_horizon != last:
                answers.append((edit, at_horizon))
                last = at_horizon
            rows.append((len(answers) - 1, 0, NOT_DUE))
    table = np.array(rows, np.int64).reshape(len(edits), len(parameters.horizons_s), 3)
    answer, why_none, due_us = np.moveaxis(table, 2, 0)
    columns = _columns(groups, parameters.horizons_s)
    return EditTargets(
        edits, answers, answer, list(unscored), why_none, due_us, groups, parameters.horizons_s,
        columns,
    )  # fmt: skip


def _grouped(
    kind: TargetKind, sessions: Sequence[str], ids: Sequence[str], checkpoints: Sequence[str | None]
) -> TargetGroup:
    numbers: dict[tuple[str, str], int] = {}
    of = [numbers.setdefault(key, len(numbers)) for key in zip(sessions, ids, strict=True)]
    named: list[set[str | None]] = [set() for _ in numbers]
    for number, checkpoint in zip(of, checkpoints, strict=True):
        named[number].add(checkpoint)
    common = [names.pop() if len(names) == 1 else None for names in named]
    own_sessions, own_ids = [key[0] for key in numbers], [key[1] for key in numbers]
    return TargetGroup(kind, own_sessions, own_ids, common, np.array(of, np.int64))


def _columns(groups: Sequence[TargetGroup], horizons_s: Sequence[int]) -> dict[str, pa.Array]:
    values: dict[str, Iterable[object]] = {
        "session_id": (session for group in groups for session in group.sessions),
        "target_kind": (group.kind for group in groups for _ in group.ids),
        "target_id": (target for group in groups for target in group.ids),
        "checkpoint": (checkpoint for group in groups for checkpoint in group.checkpoints),
    }
    count = sum(len(group.ids) for group in groups)
    each_horizon = pa.array(np.repeat(np.arange(count), len(horizons_s)))
    columns = {
        name: pa.array(list(column), REWARD_ROWS.field(name).type).take(each_horizon)
        for name, column in values.items()
    }
    return columns | {"horizon_s": pa.array(np.tile(np.array(horizons_s, np.int32), count))}


def state_numbers(state_reasons: Iterable[StateReason]) -> dict[StateReason, int]:
    """Number states with reasons: scored, pending, then the others in order."""
    first: list[StateReason] = [("scored", None), ("pending", None)]
    rest = sorted(set(state_reasons).difference(first), key=str)
    return {state_reason: number for number, state_reason in enumerate([*first, *rest])}


class TargetScores(NamedTuple):
    value: Floats
    state_reason: Numbers
    weight: Floats
    due_us: Numbers


def wholes(parts: TargetScores, of: Numbers, count: int) -> TargetScores:
    """Combine parts into wholes. `of` is the number of each part's whole."""
    horizons = parts.value.shape[1]
    size = count * horizons
    place = (of[:, np.newaxis] * horizons + np.arange(horizons)).ravel()
    value, state_reason = parts.value.ravel(), parts.state_reason.ravel()
    weight, due_us = parts.weight.ravel(), parts.due_us.ravel()
    scored = state_reason == SCORED
    counted = np.where(scored, weight, 0.0)
    worth = np.where(scored, value, 0.0)
    all_weight = np.bincount(place, weight, size)
    scored_weight = np.bincount(place, counted, size)
    scored_parts = np.bincount(place, scored, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(place, counted * worth, size) / scored_weight
        plain = np.bincount(place, worth, size) / scored_parts
    latest = np.full(size, NOT_DUE)
    np.maximum.at(latest, place, due_us)

    numbers = int(state_reason.max(initial=PENDING)) + 1
    counts = np.bincount(place * numbers + state_reason, minlength=size * numbers)
    counts = counts.reshape(size, numbers)
    counts[:, : PENDING + 1] = 0

    waits = np.bincount(place, state_reason == PENDING, size) > 0
    is_scored = (scored_parts > 0) & ~waits
    other = np.where(waits, PENDING, counts.argmax(axis=1))
    combined = (
        np.where(is_scored, np.where(scored_weight != 0, mean, plain), np.nan),
        np.where(is_scored, SCORED, other),
        np.where(is_scored, scored_weight, all_weight),
        latest,
    )
    alone = np.bincount(place, minlength=size) == 1
    only = np.zeros(size, np.int64)
    only[place] = np.arange(len(place))
    columns = [
        np.where(alone, part[only], whole).reshape(count, horizons)
        for part, whole in zip((value, state_reason, weight, due_us), combined, strict=True)
    ]
    return TargetScores(*columns)
