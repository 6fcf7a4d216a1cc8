"""A bucket of sessions: the tables that rewards are computed from, without any of the lake."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import SessionId
from penstock.lake.view_sources import bucket_views
from penstock.privacy.consents import NO_TRAIN
from penstock_jobs.rewards.followups.judge import Judge
from penstock_jobs.rewards.followups.labels import SessionLabels
from penstock_jobs.rewards.lives import ChainMember, Life, Relations, SessionRows, lives, own_events
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.rewards.texts.trail import SECOND, TrackedEdit, TrailTerms


@dataclass(frozen=True)
class EditParameters:
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

    def terms(self) -> TrailTerms:
        ends = [at + max(self.tolerance_s, self.tolerance_share * at) for at in self.horizons_s]
        spans = zip(self.horizons_s, ends, strict=True)
        windows = tuple((begin * SECOND, round(end * SECOND)) for begin, end in spans)
        return TrailTerms(windows, self.move_min, self.cells_max)


Columns = Mapping[str, Sequence[str]]
MadeT = TypeVar("MadeT")


@dataclass(frozen=True, eq=False)
class Bucket:
    """Whole sessions as the views show them, in any order of rows; `events` are of types that no
    other view shows. What comes after `as_of_us`, in microseconds, may be incomplete."""

    as_of_us: int
    edits: pa.Table
    observations: pa.Table
    turns: pa.Table
    user_messages: pa.Table
    model_calls: pa.Table
    tool_calls: pa.Table
    feedback: pa.Table
    events: pa.Table
    llm_judge: Judge | None = field(default=None, repr=False)
    labels: SessionLabels = field(default_factory=SessionLabels, repr=False)
    #: The places of sessions that are one life with others. Without any, each is by itself.
    chains: Mapping[str, ChainMember] = field(default_factory=dict, repr=False)
    #: Sessions whose tables hold only what is their own: the rest is their parents'.
    repeating: frozenset[str] = frozenset()
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], MadeT]) -> MadeT:
        """What several rewards need is made once, and kept as long as the bucket."""
        if key not in self._made:
            self._made[key] = make()
        made: MadeT = self._made[key]
        return made

    def trails(self, parameters: EditParameters) -> dict[str, list[TrackedEdit]]:
        """What became of each session's edits."""
        terms = parameters.terms()
        return self.once(("trails", terms), lambda: self._replayed(terms))

    def _replayed(self, terms: TrailTerms) -> dict[str, list[TrackedEdit]]:
        trails: dict[str, list[TrackedEdit]] = {}
        for life in self._lives():
            tracked = replay(
                life.edits,
                life.looks,
                life.commits,
                turns_us=life.turns_us,
                ended_us=life.ended_us(self.as_of_us),
                as_of_us=self.as_of_us,
                terms=terms,
            )
            for edit in tracked:
                trails.setdefault(edit.session, []).append(edit)
        return dict(sorted(trails.items()))

    def chain_of(self, session: str) -> str:
        """The name of its chain; its own, if it is in none."""
        return self.chains[session].chain if session in self.chains else session

    def refusing(self) -> set[str]:
        """Sessions that may not be trained on: nobody is shown their messages."""
        refused = self.turns.filter(pc.equal(self.turns["consent"], NO_TRAIN))
        return set(refused["session_id"].to_pylist())

    def is_subagent(self, session: str) -> bool:
        """What it is told is said by another agent."""
        return session in self.chains and self.chains[session].subagent

    def _lives(self) -> Iterator[Life]:
        events = self.events
        if events.num_rows:
            kinds = pa.array(["vcs_commit", "session_end"])
            events = events.filter(pc.is_in(events["type"], kinds))
        seen = ("path", "text", "deleted", "branch_changed")
        rows = SessionRows(
            edits=by_session(
                self.edits, *_NAMED, "edit_id", "path", "before", "after", "checkpoint"
            ),
            looks=by_session(self.observations, *_NAMED, *seen),
            events=by_session(events, *_NAMED, "type", "payload"),
            turns=by_session(self.turns, "turn"),
        )
        return lives(rows, self.chains)


_NAMED = ("session_id", "event_id")
TABLES = tuple(table.name for table in fields(Bucket) if table.type is pa.Table)


def by_session(table: pa.Table, *columns: str) -> dict[str, list[dict[str, Any]]]:
    """By session its rows, with `ts` in microseconds, `seq` and the named columns."""
    if not table.num_rows:
        return {}
    names = ("ts", "seq", *columns)
    rows: dict[str, list[dict[str, Any]]] = {}
    for session, *row in row_tuples(table, "session_id", *names):
        rows.setdefault(session, []).append(dict(zip(names, row, strict=True)))
    return rows


#: What no view shows; of the others the view `events` would be a copy.
_EVENTS = "type IN ('interrupt', 'session_end', 'test_result', 'vcs_commit')"


def as_bucket(
    rows: pa.Table,
    tenant: str,
    as_of_us: int,
    columns: Columns | None = None,
    relations: Relations | None = None,
    *,
    tables: Collection[str] = TABLES,
) -> Bucket:
    """A tenant's sessions as of `as_of_us`, of each view all columns or these. With `relations`,
    chains are one life, and what a session repeats of its parent is left out."""
    relations = relations or Relations()
    own = own_events(rows, relations)
    rows = own.rows
    is_later = _is_later(rows, as_of_us)
    if pc.any(is_later).as_py():
        rows = rows.filter(pc.invert(is_later))
    where = {"events": _EVENTS}
    views = dict.fromkeys(TABLES, pa.table({}))
    views |= bucket_views(rows, tenant, tables, columns=columns, where=where)
    if own.turns:
        views["turns"] = _renumbered(views["turns"], own.turns)
    chains, repeating = relations.chains, frozenset(own.turns)
    return Bucket(as_of_us, **views, chains=chains, repeating=repeating)


def _renumbered(turns: pa.Table, numbers: Mapping[str, Sequence[int]]) -> pa.Table:
    told = row_tuples(turns, "session_id", "turn")
    renamed = [numbers[session][turn] if session in numbers else turn for session, turn in told]
    at = turns.column_names.index("turn")
    return turns.set_column(at, turns.schema.field("turn"), pa.array(renamed, pa.int64()))


def later(rows: pa.Table, as_of_us: int) -> dict[SessionId, int]:
    """When each session with events that `as_bucket` leaves out is to be computed again."""
    rows = rows.filter(_is_later(rows, as_of_us)).select(["tenant", "session_id", "ts"])
    first = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min")])
    moments = row_tuples(first, "tenant", "session_id", "ts_min")
    return {SessionId(tenant, session): ts for tenant, session, ts in moments}


def _is_later(rows: pa.Table, as_of_us: int) -> pa.ChunkedArray:
    return pc.greater(rows["ts"].cast(pa.int64()), as_of_us)
