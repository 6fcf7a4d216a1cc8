"""Rewards of work left to others: text that was taken back, and work that remained to do.

Both count characters, not shares of what was written, so that more text beside it helps nothing."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.edit_scores import (
    SCORED,
    EditTargets,
    Floats,
    Numbers,
    StateReason,
    TargetScores,
    edit_targets,
    state_numbers,
    turn_rows,
    wholes,
)
from penstock_jobs.rewards.texts import survival
from penstock_jobs.rewards.texts.changes import CompareCost, TooExpensive, ink
from penstock_jobs.rewards.texts.languages import comment_start, is_comment
from penstock_jobs.rewards.texts.places import PlaceWeights
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState, between
from penstock_jobs.rewards.texts.trail import HorizonState, Survivor, TrackedEdit

#: Text that others added elsewhere in the file may be unrelated: it counts by half.
ELSEWHERE = 0.5
#: The share of removed lines that the turn itself wrote.
_OWN_SHARE = 0.6
_SPACES = (" ", "\n", "\t", "\r")

Stretch = tuple[int, int]


class Remainder(NamedTuple):
    #: Characters of the edit that were taken back, or removed ones that count_restored.
    taken: float
    #: Characters that others or later turns put in the place of the turn's edits in this file.
    put: float
    #: False if the agent itself replaced everything.
    counts: bool


NOTHING = Remainder(0.0, 0.0, counts=True)


def ink_count(text: str) -> int:
    """Count as `len(ink(text))` does for usual white space, in a tenth of the time."""
    return len(text) - sum(map(text.count, _SPACES))


def is_all_comments(edit: TrackedEdit) -> bool:
    """Whether it wrote nothing but lines that are comments alone."""
    start = comment_start(edit.path or "")
    if edit.deleted or start is None or start not in edit.after:
        return False
    lines = (line.strip() for at, end in edit.written for line in _lines(edit.after, at, end))
    return all(is_comment(line, start) for line in lines if line)


def came_to_nothing(edits: Sequence[TrackedEdit]) -> bool:
    """Whether these edits of one turn and file, in order, left it as it was before them."""
    first, last = edits[0].made, edits[-1].made
    if len(edits) < 2 or first is None or last is None:
        return False
    return ink(_text_before(edits[0], first)) == ink(last.text)


def takes_own(edit: TrackedEdit, earlier: Sequence[TrackedEdit]) -> bool:
    """Whether it takes away what earlier edits of the same turn and file had written."""
    if not edit.deleted or not earlier:
        return False
    known = {
        ink(line)
        for other in earlier
        for start, end in other.written
        for line in _lines(other.after, start, end)
    }
    gone = [ink(line) for text in edit.deleted.values() for line in text.splitlines()]
    return sum(len(line) for line in gone if line in known) >= _OWN_SHARE * sum(map(len, gone))


def _text_before(edit: TrackedEdit, made: FileState) -> str:
    parts, at = [], 0
    for number, changed in enumerate(edit.ranges):
        start, end = made.ranges.get((edit.owner, number), (at, at))
        parts += [made.text[at:start], changed.before]
        at = end
    return "".join([*parts, made.text[at:]])


def remainder(
    edit: TrackedEdit,
    at_horizon: HorizonState,
    turn: Collection[int],
    comments: float,
    cost: CompareCost,
) -> Remainder | None:
    """Measure what remained of an edit.

    `turn` are the owners of the turn's edits, `comments` the weight of comment lines. None if the
    file of a removal is gone. Raises TooExpensive."""
    if edit.is_as_made(at_horizon):
        return NOTHING
    home = at_horizon.home
    put = 0.0 if home is None or edit.made is None else _put(edit, edit.made, home, turn)
    if edit.deleted:
        if home is None:
            return None
        back, own = survival.count_restored(edit, home, cost)
        return Remainder(back, put, own < edit.ink_size)
    alive = survival.survivors(edit, at_horizon)
    reworked = [(start, start + length) for start, length in at_horizon.reworked]
    standing = [(origin, origin + length) for origin, _, _, length in alive]
    lost = without(edit.written, standing + reworked)
    if not (alive or lost or put):
        return Remainder(0.0, 0.0, counts=False)
    return Remainder(_taken(edit, alive, lost, comments), put, counts=True)


def without(stretches: Sequence[Stretch], taken: Iterable[Stretch]) -> list[Stretch]:
    """Subtract `taken` from stretches, which are in order."""
    length = max((end for _, end in stretches), default=0)
    outside = between(((start, end - start) for start, end in stretches), length)
    covered = sorted((start, end - start) for start, end in [*outside, *taken])
    return between(((start, size) for start, size in covered if start < length), length)


def _put(edit: TrackedEdit, made: FileState, home: FileState, turn: Collection[int]) -> float:
    """Count text that others and later turns put there, and half of additions elsewhere."""
    by_others = by_later = 0
    at = 0
    for start, end in sorted(place for (owner, _), place in home.ranges.items() if owner in turn):
        begin = max(start, at)
        for length, owner, _ in home.cut(begin, end):
            if owner <= OTHERS:
                by_others += ink_count(home.text[begin : begin + length])
            elif owner > edit.owner and owner not in turn:
                by_later += ink_count(home.text[begin : begin + length])
            begin += length
        at = max(at, end)
    added = max(_ink_of_others(home) - _ink_of_others(made) - by_others, 0)
    return by_others + by_later + ELSEWHERE * added


def _ink_of_others(state: FileState) -> int:
    owned = sum(
        ink_count(state.text[at : at + length])
        for pieces in state.pieces.values()
        for _, at, length in pieces
    )
    return ink_count(state.text) - owned


def _taken(
    edit: TrackedEdit, alive: Sequence[Survivor], lost: Sequence[Stretch], comments: float
) -> float:
    """Count lost text, and the changed part of lines that are partly there."""
    total = 0.0
    text, start = edit.after, comment_start(edit.path or "")
    if start is not None and start not in text:
        start = None
    at = 0
    for begin, end in survival.lines_of(text, edit.written):
        while at < len(lost) and lost[at][1] <= begin:
            at += 1
        if at == len(lost):
            break
        if lost[at][0] >= end:
            continue
        gone = sum(
            ink_count(text[max(first, begin) : min(last, end)])
            for first, last in lost[at:]
            if first < end
        )
        size = ink_count(text[begin:end])
        left = survival.credit(text, [(begin, end)], alive) if gone < size else 0.0
        line = text[text.rfind("\n", 0, begin) + 1 : end].strip()
        weight = comments if start and is_comment(line, start) else 1.0
        total += weight * max(gone, size - left)
    return total


def _lines(text: str, start: int, end: int) -> list[str]:
    return text[start:end].splitlines(keepends=True)


_PATH_LOST: StateReason = ("censored", "path_lost")
_UNOBSERVED: StateReason = ("censored", "unobserved")
_SELF_REWORK: StateReason = ("censored", "self_rework")
_TOO_EXPENSIVE: StateReason = ("invalid", "too_expensive")

#: The least weight of an edit that counts as kept work.
_WORK_MIN = 0.3


@dataclass(frozen=True)
class WorkParameters(EditParameters):
    """`scale_chars` characters left to others turn 1 into 0.71, three times as many into 0.5.

    `places` are weights of characters by place."""

    scale_chars: float = 40.0
    places: PlaceWeights = field(default_factory=PlaceWeights)

    def __post_init__(self) -> None:
        if self.scale_chars <= 0:
            raise ValueError("scale_chars must be above 0")


def taken_back(bucket: Bucket, parameters: WorkParameters) -> pa.Table:
    """taken_back: how much of what the agent wrote was taken back, as it was.

    Measures: the user's rejection in characters. Text beside a rejected edit makes it no lighter.

    Formula, per turn at a horizon, white space not counted:

        −(1 − 1 / √(1 + L / scale_chars))      L = Σ of its edits: weight · characters taken back

    Characters of an edit are taken back if they are gone and the agent did not replace them. Lines
    that are partly there count as much as edit_persistence discounts. For an edit that only took
    away, characters that others brought back count. `places` are the weights. A session is the mean
    of its turns.

    Range: −1, all of a large work, to 0, nothing.
    pending, censored, invalid: as edit_persistence says; `self_rework` where the agent replaced
    all.
    To game it: write nothing, or where nobody answers; so it only takes, and work_left gives.
    """
    work = _turn_work(bucket, parameters)
    return work.rows("taken_back", _kept(work.taken, parameters) - 1)


def work_left(bucket: Bucket, parameters: WorkParameters) -> pa.Table:
    """work_left: how little the user, or later turns, had still to do.

    Measures: who did the work in the places that a turn touched. What others took back of it, and
    what they and later turns put there, was still to be done. A quarter of the task in one good
    line is worth less than all of it with a flaw.

    Formula, per turn at a horizon, white space not counted:

        place / √(1 + T / scale_chars)     T = Σ of its files: weight · max(taken, put + added / 2)

    `taken` is what taken_back counts in that file; `put` what others and later turns put between
    the turn's text and at its edges; `added` by how much others made the rest of the file longer.
    `place` is the highest weight of the turn's edits. It is 1 for code, and as `places` says for
    tests, docs, fixtures, generated files, comments and edits that only took away. It is 0 if edits
    of a turn together left their file as it was. A session is the mean of its turns.

    Range: 0 to 1, nothing was left to do.
    pending, censored, invalid: as taken_back says. Turns without an edit have no row.
    To game it: edit where the user will not answer, and leave the work undone: messages
    (dissatisfied_follow_up, asked_again) and benchmarks show that. A user's next task in the same
    lines counts as work that was left, for all checkpoints alike.
    """
    work = _turn_work(bucket, parameters)
    return work.rows("work_left", work.place * _kept(work.left, parameters))


def _kept(chars: Floats, parameters: WorkParameters) -> Floats:
    kept: Floats = 1 / np.sqrt(1 + chars / parameters.scale_chars)
    return kept


class _TurnWork(NamedTuple):
    targets: EditTargets
    number: dict[StateReason, int]
    turns: TargetScores
    taken: Floats
    left: Floats
    place: Floats
    works: frozenset[tuple[str, str]]

    def rows(self, name: str, value: Floats) -> pa.Table:
        value = np.where(self.turns.state_reason == SCORED, value, np.nan)
        return turn_rows(name, self.targets, self.number, self.turns._replace(value=value))


def _turn_work(bucket: Bucket, parameters: WorkParameters) -> _TurnWork:
    return bucket.once(
        ("work", parameters), lambda: _worked_out(edit_targets(bucket, parameters), parameters)
    )


def _worked_out(targets: EditTargets, parameters: WorkParameters) -> _TurnWork:
    of_turns = targets.groups[2]
    remainders = _remainders(targets, of_turns.of, parameters)
    reasons = [own for own in remainders if not isinstance(own, Remainder)]
    number = state_numbers([*targets.unscored, *reasons])
    # The last place, index −1, stands for an unanswered horizon.
    table = np.array([_columns(own, number) for own in [*remainders, NOTHING]], np.float64)
    taken, put, state = np.moveaxis(table[targets.answer], 2, 0)
    unanswered = np.array([number[why] for why in targets.unscored] or [SCORED])[targets.why]
    state_reason = np.where(targets.answer < 0, unanswered, state.astype(np.int64))
    ones = np.where(state_reason == SCORED, 1.0, np.nan)
    edits = TargetScores(ones, state_reason, np.ones_like(taken), targets.due_us)
    turns = wholes(edits, of_turns.of, len(of_turns.ids))
    shape = turns.value.shape
    scored = state_reason == SCORED
    turn, places = of_turns.of, parameters.places
    numbers: dict[tuple[int, str], int] = {}
    files = [
        numbers.setdefault((turn, edit.path or ""), len(numbers))
        for turn, edit in zip(turn.tolist(), targets.edits, strict=True)
    ]
    path, turn_of_path = np.array(files, np.int64), np.array([at for at, _ in numbers], np.int64)
    weights = [places.of(edit.place_of_loss) for edit in targets.edits]
    weight = np.array(weights, np.float64)[:, np.newaxis]
    kinds = [places.of(edit.place) * _kind_weight(edit, places) for edit in targets.edits]
    best = np.array(kinds, np.float64)[:, np.newaxis]
    best[_in_vain(targets.edits, path)] = 0.0
    place = np.zeros(shape)
    np.maximum.at(place, turn, np.where(scored, best, 0.0))
    # All edits of a turn see text that was put into a file: it counts once.
    put_in = np.zeros((len(numbers), shape[1]))
    np.maximum.at(put_in, path, np.where(scored, weight * put, 0.0))
    taken_of = _summed(np.where(scored, weight * taken, 0.0), path, put_in.shape)
    return _TurnWork(
        targets,
        number,
        turns._replace(weight=np.ones(shape)),
        _summed(taken_of, turn_of_path, shape),
        _summed(np.maximum(taken_of, put_in), turn_of_path, shape),
        place,
        frozenset(
            (session, edit.target_id)
            for session, edit, own in zip(
                targets.groups[0].sessions, targets.edits, best.ravel().tolist(), strict=True
            )
            if own >= _WORK_MIN
        ),
    )


def works(bucket: Bucket, parameters: WorkParameters) -> frozenset[tuple[str, str]]:
    """Return edits that are work: not notes, comments, generated text, or undone in the turn."""
    return _turn_work(bucket, parameters).works


def _kind_weight(edit: TrackedEdit, places: PlaceWeights) -> float:
    if edit.deleted:
        return places.deletions
    return places.comments if is_all_comments(edit) else 1.0


def _remainders(
    targets: EditTargets, turn_of: Numbers, parameters: WorkParameters
) -> list[Remainder | StateReason]:
    turns: dict[int, set[int]] = {}
    turn_of_edit: dict[TrackedEdit, set[int]] = {}
    for edit, turn in zip(targets.edits, turn_of.tolist(), strict=True):
        turn_of_edit[edit] = turns.setdefault(turn, set())
        turn_of_edit[edit].add(edit.owner)
    comments = parameters.places.comments

    def measured(edit: TrackedEdit, at_horizon: HorizonState) -> Remainder | StateReason:
        cost = CompareCost(parameters.cells_max)
        if at_horizon.home is not None and survival.grew_unseen(edit, at_horizon.home):
            return _UNOBSERVED
        try:
            own = remainder(edit, at_horizon, turn_of_edit[edit], comments, cost)
        except TooExpensive:
            return _TOO_EXPENSIVE
        if own is None:
            return _PATH_LOST
        return own if own.counts else _SELF_REWORK

    return [measured(edit, at_horizon) for edit, at_horizon in targets.answers]


def _columns(own: Remainder | StateReason, number: dict[StateReason, int]) -> tuple[float, ...]:
    if isinstance(own, Remainder):
        return own.taken, own.put, SCORED
    return 0.0, 0.0, number[own]


def _in_vain(edits: list[TrackedEdit], path_of: Numbers) -> list[int]:
    """Find edits that other edits of the turn undid, and those that undid them."""
    by_path: dict[int, list[int]] = {}
    for number, path in enumerate(path_of.tolist()):
        by_path.setdefault(path, []).append(number)
    vain = []
    for numbers in by_path.values():
        own = [edits[number] for number in numbers]
        if came_to_nothing(own):
            vain += numbers
        else:
            vain += [n for at, n in enumerate(numbers) if takes_own(own[at], own[:at])]
    return vain


def _summed(parts: Floats, of: Numbers, shape: tuple[int, ...]) -> Floats:
    summed = np.zeros(shape)
    np.add.at(summed, of, parts)
    return summed


REWARDS = (
    Reward("taken_back", 1, taken_back, WorkParameters),
    Reward("work_left", 1, work_left, WorkParameters),
)
