"""The edits of a bucket, their files, turns and sessions: what rows are made for, and what there
is to score. Worked out once for all rewards of edits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from penstock_jobs.rewards.rows import REWARD_ROWS, Bucket, Parameters, TargetKind
from penstock_jobs.rewards.texts.trail import Seen, Terms, TrackedEdit
from penstock_jobs.rewards.wholes import NOT_DUE, Numbers

#: (state, reason).
Standing = tuple[str, str | None]


@dataclass(frozen=True, eq=False)
class Group:
    """The targets of one kind. `of` says to which of them each part belongs."""

    kind: TargetKind
    sessions: list[str]
    ids: list[str]
    checkpoints: list[str | None]
    of: Numbers

    @property
    def count(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class EditTargets:
    edits: list[TrackedEdit]
    #: What edits were seen to be, each once.
    looks: list[tuple[TrackedEdit, Seen]]
    #: For each edit and horizon, the number of the look that answers it; −1 for none.
    look: Numbers
    #: Why there is none, for each edit and horizon the number of it.
    unscored: list[Standing]
    why: Numbers
    due_us: Numbers
    files: Group
    turns: Group
    #: Of turns.
    sessions: Group
    #: The columns of rows that are the same for all rewards: edits, files, turns, sessions.
    columns: dict[str, pa.Array]


_known: WeakKeyDictionary[Bucket, dict[Terms, EditTargets]] = WeakKeyDictionary()


def edit_targets(bucket: Bucket, parameters: Parameters) -> EditTargets:
    known = _known.setdefault(bucket, {})
    terms = parameters.terms()
    if terms not in known:
        known[terms] = _targets(bucket, parameters)
    return known[terms]


def _targets(bucket: Bucket, parameters: Parameters) -> EditTargets:
    told = [(trail.session_id, edit) for trail in bucket.trails(parameters) for edit in trail.edits]
    edits = [edit for _, edit in told]
    sessions = [session for session, _ in told]
    checkpoints = [edit.checkpoint for edit in edits]
    each = Group(
        "edit", sessions, [edit.target_id for edit in edits], checkpoints, np.arange(len(edits))
    )
    files = _grouped("file", sessions, [edit.path or "" for edit in edits], checkpoints)
    turns = _grouped("turn", sessions, [str(edit.turn) for edit in edits], checkpoints)
    whole = _grouped("session", turns.sessions, turns.sessions, turns.checkpoints)
    columns = _columns([each, files, turns, whole], parameters.horizons_s)
    return EditTargets(
        edits, *_looks(edits, len(parameters.horizons_s)), files, turns, whole, columns
    )


def _looks(
    edits: Sequence[TrackedEdit], horizons: int
) -> tuple[list[tuple[TrackedEdit, Seen]], Numbers, list[Standing], Numbers, Numbers]:
    looks: list[tuple[TrackedEdit, Seen]] = []
    unscored: dict[Standing, int] = {}
    rows: list[tuple[int, int, int]] = []
    for edit in edits:
        last: Seen | None = None
        for seen in edit.seen:
            if seen.state != "scored":
                why = unscored.setdefault((seen.state, seen.reason), len(unscored))
                rows.append((-1, why, NOT_DUE if seen.due_us is None else seen.due_us))
                continue
            if seen != last:
                looks.append((edit, seen))
                last = seen
            rows.append((len(looks) - 1, 0, NOT_DUE))
    table = np.array(rows, np.int64).reshape(len(edits), horizons, 3)
    return looks, table[:, :, 0], list(unscored), table[:, :, 1], table[:, :, 2]


def _grouped(
    kind: TargetKind,
    sessions: Sequence[str],
    ids: Sequence[str],
    checkpoints: Sequence[str | None],
) -> Group:
    numbers: dict[tuple[str, str], int] = {}
    of = [numbers.setdefault(key, len(numbers)) for key in zip(sessions, ids, strict=True)]
    named: list[set[str | None]] = [set() for _ in numbers]
    for number, checkpoint in zip(of, checkpoints, strict=True):
        named[number].add(checkpoint)
    common = [names.pop() if len(names) == 1 else None for names in named]
    return Group(
        kind,
        [key[0] for key in numbers],
        [key[1] for key in numbers],
        common,
        np.array(of, np.int64),
    )


def _columns(groups: Sequence[Group], horizons_s: Sequence[int]) -> dict[str, pa.Array]:
    def repeated(name: str, values: Iterable[object]) -> pa.Array:
        array = pa.array(list(values), REWARD_ROWS.field(name).type)
        return array.take(pa.array(np.repeat(np.arange(len(array)), len(horizons_s))))

    count = sum(group.count for group in groups)
    return {
        "session_id": repeated("session_id", (one for group in groups for one in group.sessions)),
        "target_kind": repeated("target_kind", (group.kind for group in groups for _ in group.ids)),
        "target_id": repeated("target_id", (one for group in groups for one in group.ids)),
        "horizon_s": pa.array(np.tile(np.array(horizons_s, np.int32), count)),
        "checkpoint": repeated(
            "checkpoint", (one for group in groups for one in group.checkpoints)
        ),
    }
