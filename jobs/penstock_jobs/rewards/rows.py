"""What rewards are computed from, and the rows that they are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.followups.judging import Judge
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.rewards.texts.trail import SECOND, Terms, Trail

State = Literal["pending", "scored", "censored", "invalid"]
TargetKind = Literal["edit", "file", "turn", "session", "model_call"]

#: Sorted by session_id, target_kind, target_id, name, horizon_s by whoever stores them.
#: `due_us` is of pending rows: by that moment, in microseconds since 1970, the row will be pending
#: no more, even if no new event comes. A pending row without it waits for an event. On a censored
#: row it is when to compute the session again, where a later run may know more.
REWARD_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("target_kind", pa.string(), nullable=False),
        pa.field("target_id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("horizon_s", pa.int32()),
        pa.field("value", pa.float64()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("due_us", pa.int64()),
        pa.field("checkpoint", pa.string()),
    ]
)


@dataclass(frozen=True)
class Parameters:
    """How persistence is measured. Times are in seconds, lengths in characters."""

    horizons_s: tuple[int, ...] = (0, 5, 30, 120, 300, 600, 900)
    #: A horizon is answered by what is seen within this time after it, or within this share of
    #: it, whichever is longer.
    tolerance_s: float = 10.0
    tolerance_share: float = 0.25
    #: Shorter stretches that appear elsewhere are chance, not moves.
    move_min: int = 20
    #: What an edit weighs in its turn: its characters to this power.
    weight_exponent: float = 0.5
    #: Pairs of units that comparing two texts may look at.
    cells_max: int = 100_000_000

    def terms(self) -> Terms:
        windows = []
        for horizon in self.horizons_s:
            tolerance = max(self.tolerance_s, self.tolerance_share * horizon)
            windows.append((horizon * SECOND, round((horizon + tolerance) * SECOND)))
        return Terms(tuple(windows), self.move_min, self.cells_max)


#: The tables of a bucket, named as the views that they are.
TABLES = (
    "edits", "observations", "turns", "user_messages", "model_calls", "tool_calls", "feedback",
    "events",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bucket:
    """All events of some sessions, as the views show them; whole sessions, in any order of rows.
    `events` are those of types that no other view shows.
    Views that a reward does not read may be empty tables. Events after `as_of_us`, in
    microseconds, may be incomplete: `as_bucket` leaves them out, and where they are there, nothing
    about edits looks at them."""

    as_of_us: int
    edits: pa.Table
    observations: pa.Table
    turns: pa.Table
    user_messages: pa.Table
    model_calls: pa.Table
    tool_calls: pa.Table
    feedback: pa.Table
    events: pa.Table
    #: What the rewards by a language model ask.
    llm_judge: Judge | None = field(default=None, repr=False)
    _trails: dict[Terms, list[Trail]] = field(default_factory=dict, init=False, repr=False)

    def trails(self, parameters: Parameters) -> list[Trail]:
        """What became of each session's edits, by session_id. Lived through once for all rewards
        with the same terms."""
        terms = parameters.terms()
        if terms not in self._trails:
            self._trails[terms] = list(self._replayed(terms))
        return self._trails[terms]

    def _replayed(self, terms: Terms) -> Iterator[Trail]:
        edits = by_session(
            self.edits, "edit_id", "event_id", "path", "before", "after", "checkpoint"
        )
        looks = by_session(
            self.observations, "event_id", "path", "text", "deleted", "branch_changed"
        )
        turns = by_session(self.turns, "turn")
        commits, ends = self._of_events()
        for session in sorted(edits):
            yield replay(
                session,
                edits[session],
                looks.get(session, ()),
                commits.get(session, ()),
                turns_us=_turn_starts(turns.get(session, ())),
                ended_us=ends.get(session),
                as_of_us=self.as_of_us,
                terms=terms,
            )

    def _of_events(self) -> tuple[dict[str, list[dict[str, Any]]], dict[str, int]]:
        """Commits that carry texts, and when sessions ended."""
        if not self.events.num_rows:
            return {}, {}
        kinds = pc.is_in(self.events["type"], pa.array(["vcs_commit", "session_end"]))
        chosen = by_session(self.events.filter(kinds), "event_id", "type", "payload")
        commits: dict[str, list[dict[str, Any]]] = {}
        ends: dict[str, int] = {}
        for session, rows in chosen.items():
            for row in rows:
                if row["type"] == "vcs_commit":
                    files = _files_of(row["payload"])
                    if files:
                        commits.setdefault(session, []).append({**row, "files": files})
                elif row["ts"] <= self.as_of_us:
                    ends[session] = max(ends.get(session, 0), row["ts"])
        return commits, ends


def by_session(table: pa.Table, *columns: str) -> dict[str, list[dict[str, Any]]]:
    """Rows with `ts` in microseconds, `seq` and the named columns."""
    if not table.num_rows:
        return {}
    names = ("ts", "seq", *columns)
    values = [table["ts"].cast(pa.int64()).to_pylist()]
    values += [table[name].to_pylist() for name in names[1:]]
    found: dict[str, list[dict[str, Any]]] = {}
    for session, *row in zip(table["session_id"].to_pylist(), *values, strict=True):
        found.setdefault(session, []).append(dict(zip(names, row, strict=True)))
    return found


def _turn_starts(turns: Iterable[dict[str, Any]]) -> list[int]:
    """When each turn began, by its number; turn 0 is there only if something precedes the first
    message."""
    starts = {row["turn"]: row["ts"] for row in turns}
    if not starts:
        return []
    starts.setdefault(0, min(starts.values()))
    return [starts[turn] for turn in sorted(starts)]


def _files_of(payload: str) -> list[Any]:
    try:
        files = msgspec.json.decode(payload).get("files")
    except (msgspec.DecodeError, AttributeError):
        return []
    return files if isinstance(files, list) else []


def latest_due(dues: Iterable[int | None]) -> int | None:
    """By when a whole is pending no more, from its pending parts: never without an event, if that
    holds of one of them."""
    latest: int | None = None
    for due in dues:
        if due is None:
            return None
        latest = due if latest is None else max(latest, due)
    return latest


class RewardRows:
    """The rows of a reward without horizons, put down one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        session: str,
        target: tuple[TargetKind, str],
        *,
        value: float | None,
        state: State | None = None,
        reason: str | None = None,
        weight: float = 1.0,
        due_us: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Without a state it is scored, or censored for a reason."""
        state = state or ("censored" if value is None else "scored")
        self._rows.append((session, *target, value, state, reason, weight, due_us, checkpoint))

    def table(self) -> pa.Table:
        names = [name for name in REWARD_ROWS.names if name not in ("name", "horizon_s")]
        values = list(zip(*self._rows, strict=True)) or [()] * len(names)
        columns = {
            name: pa.array(column, REWARD_ROWS.field(name).type)
            for name, column in zip(names, values, strict=True)
        }
        columns["name"] = pa.repeat(self._name, len(self._rows))
        columns["horizon_s"] = pa.nulls(len(self._rows), pa.int32())
        return pa.Table.from_arrays([columns[one] for one in REWARD_ROWS.names], schema=REWARD_ROWS)
