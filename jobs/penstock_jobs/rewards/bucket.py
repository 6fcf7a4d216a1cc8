"""A bucket of sessions: the tables from which rewards are computed, independent of the lake.

Sessions of a chain work on the same files, so an edit's fate is often observed in another session.
An event that a fork or resume repeats counts once, in the parent.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.access.privacy.consents import NO_TRAIN
from penstock.lake.buckets import SessionId
from penstock.lake.query.view_sources import bucket_views
from penstock_jobs.rewards.followups.judge import Judge
from penstock_jobs.rewards.followups.labels import SessionLabels
from penstock_jobs.rewards.rows import query_rows, row_tuples
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.rewards.texts.trail import SECOND, RequestSpan, Row, TrackedEdit, TrailTerms

Columns = Mapping[str, Sequence[str]]
MadeT = TypeVar("MadeT")
#: Session and number of a turn.
TurnKey = tuple[str, int]


class ChainMember(NamedTuple):
    """The place of a session in a chain. A chain has the name of its first session."""

    chain: str
    subagent: bool = False


class Relations(msgspec.Struct, frozen=True):
    chains: Mapping[str, ChainMember] = msgspec.field(default_factory=dict)
    #: The session that each continues, and whether it repeats that one. Free of cycles.
    parents: Mapping[str, tuple[str, bool]] = msgspec.field(default_factory=dict)
    #: Sessions included only because others repeat them.
    beside: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EditParameters:
    """Parameters of persistence. Times are in seconds, lengths in characters."""

    horizons_s: tuple[int, ...] = (0, 5, 30, 120, 300, 600, 900)
    #: An observation answers a horizon up to the longer of the two after it.
    tolerance_s: float = 10.0
    tolerance_share: float = 0.25
    #: Shorter texts that appear elsewhere are chance, not moves.
    move_min: int = 20
    #: The weight of an edit within its turn: its characters to this power.
    weight_exponent: float = 0.5
    cells_max: int = 100_000_000

    def terms(self) -> TrailTerms:
        ends = [at + max(self.tolerance_s, self.tolerance_share * at) for at in self.horizons_s]
        spans = zip(self.horizons_s, ends, strict=True)
        windows = tuple((begin * SECOND, round(end * SECOND)) for begin, end in spans)
        return TrailTerms(windows, self.move_min, self.cells_max)


@dataclass(frozen=True, eq=False)
class Bucket:
    """Whole sessions as the views show them, in any order of rows.

    `events` have types that no other view shows. Rows later than `as_of_us` may be incomplete."""

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
    chains: Mapping[str, ChainMember] = field(default_factory=dict, repr=False)
    #: Sessions that repeat another. The tables hold only their own events.
    repeating: frozenset[str] = frozenset()
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], MadeT]) -> MadeT:
        """Compute a value that several rewards need, and keep it with the bucket."""
        if key not in self._made:
            self._made[key] = make()
        made: MadeT = self._made[key]
        return made

    def trails(
        self, parameters: EditParameters, requests: Mapping[TurnKey, RequestSpan] | None = None
    ) -> dict[str, list[TrackedEdit]]:
        """Follow each session's edits to the horizons, and to the ends of requests by turn."""
        terms = parameters.terms()
        if requests is None and (known := self._made.get(("trails", terms, True))):
            return dict(known)
        key = ("trails", terms, requests is not None)
        return self.once(key, lambda: self._replayed(terms, requests or {}))

    def chain_of(self, session: str) -> str:
        return self.chains[session].chain if session in self.chains else session

    def is_subagent(self, session: str) -> bool:
        """Whether another agent, not a user, writes the messages of the session."""
        return session in self.chains and self.chains[session].subagent

    def refusing(self) -> set[str]:
        """Return sessions that refuse training. Nobody may see their messages."""
        refused = self.turns.filter(pc.equal(self.turns["consent"], NO_TRAIN))
        return set(refused["session_id"].to_pylist())

    def _replayed(
        self, terms: TrailTerms, requests: Mapping[TurnKey, RequestSpan]
    ) -> dict[str, list[TrackedEdit]]:
        events = self.events
        if events.num_rows:
            kinds = pa.array(["vcs_commit", "session_end"])
            events = events.filter(pc.is_in(events["type"], kinds))
        edits = by_session(self.edits, *_NAMED, "edit_id", "path", "before", "after", "checkpoint")
        looks = by_session(self.observations, *_NAMED, "path", "text", "deleted", "branch_changed")
        acts = by_session(events, *_NAMED, "type", "payload")
        turns = by_session(self.turns, "turn")
        chains: dict[str, list[str]] = {}
        for session in sorted({*edits, *looks, *acts, *turns}):
            chains.setdefault(self.chain_of(session), []).append(session)
        trails: dict[str, list[TrackedEdit]] = {}
        for chain, sessions in chains.items():
            if not any(session in edits for session in sessions):
                continue
            of_user = [each for each in sessions if not self.is_subagent(each)] or sessions
            # Turn 0 precedes the first message.
            starts = {
                each: sorted((row["ts"], row["turn"]) for row in turns.get(each, ()))
                for each in sessions
            }
            own_acts = [row for session in sessions for row in acts.get(session, ())]
            commits = ((row, _files_of(row)) for row in own_acts if row["type"] == "vcs_commit")
            tracked = replay(
                [
                    {**edit, "turn": turn, "request": requests.get((session, turn))}
                    for session in sessions
                    for edit in edits.get(session, ())
                    for turn in [_turn_at(starts[session], edit["ts"])]
                ],
                [look for session in sessions for look in looks.get(session, ())],
                [{**row, "files": files} for row, files in commits if files],
                # Events before a session's first message belong to the previous turn.
                turns_us=sorted(
                    ts
                    for session in of_user
                    for ts, turn in starts[session]
                    if turn or session in (chain, of_user[0])
                ),
                ended_us=self._ended_us(own_acts, {each: starts[each] for each in of_user}),
                as_of_us=self.as_of_us,
                terms=terms,
            )
            for edit in tracked:
                trails.setdefault(edit.session, []).append(edit)
        return dict(sorted(trails.items()))

    def _ended_us(
        self, acts: Sequence[Row], starts: Mapping[str, Sequence[tuple[int, int]]]
    ) -> int | None:
        """Return the latest session end, unless an open session began a turn after it."""
        ends = [row for row in acts if row["type"] == "session_end" and row["ts"] <= self.as_of_us]
        ended = {row["session_id"] for row in ends}
        last: int | None = max((row["ts"] for row in ends), default=None)
        open_us = [own[-1][0] for session, own in starts.items() if own and session not in ended]
        return None if last is None or any(ts > last for ts in open_us) else last


_NAMED = ("session_id", "event_id")
TABLES = tuple(table.name for table in fields(Bucket) if table.type is pa.Table)


def by_session(table: pa.Table, *columns: str) -> dict[str, list[Row]]:
    """Group rows by session, with `ts` in microseconds, `seq` and the named columns."""
    if not table.num_rows:
        return {}
    names = ("ts", "seq", *columns)
    rows: dict[str, list[Row]] = {}
    for session, *row in row_tuples(table, "session_id", *names):
        rows.setdefault(session, []).append(dict(zip(names, row, strict=True)))
    return rows


def _turn_at(starts: Sequence[tuple[int, int]], ts: int) -> int:
    at = bisect_right(starts, ts, key=lambda start: start[0])
    return starts[at - 1][1] if at else 0


def _files_of(commit: Row) -> list[Any]:
    try:
        files = msgspec.json.decode(commit["payload"]).get("files")
    except (msgspec.DecodeError, AttributeError):
        return []
    return files if isinstance(files, list) else []


#: Types that no other view shows, and that rewards read.
_EVENTS = """type IN ('interrupt', 'session_end', 'test_result', 'vcs_commit', 'x_reward')
    OR type = 'user_message' AND json_extract_string(payload, '$.synthetic') = 'true'
    OR type = 'x_context' AND contains(payload, '<command-name>/clear<')"""
_COMPARED = ["session_id", "ts", "seq", "type", "source", "source_key", "event_id", "payload"]


def as_bucket(
    rows: pa.Table,
    tenant: str,
    as_of_us: int,
    columns: Columns | None = None,
    relations: Relations | None = None,
    *,
    tables: Collection[str] = TABLES,
) -> Bucket:
    """Make a bucket of a tenant's sessions as of `as_of_us`, with these columns or all."""
    relations = relations or Relations()
    rows, turn_numbers = _own_events(rows, relations)
    is_later = _is_later(rows, as_of_us)
    if pc.any(is_later).as_py():
        rows = rows.filter(pc.invert(is_later))
    where = {"events": _EVENTS}
    views = dict.fromkeys(TABLES, pa.table({}))
    views |= bucket_views(rows, tenant, tables, columns=columns, where=where)
    if turn_numbers:
        turns = views["turns"]
        numbers = [
            turn_numbers[session][turn] if session in turn_numbers else turn
            for session, turn in row_tuples(turns, "session_id", "turn")
        ]
        at = turns.column_names.index("turn")
        views["turns"] = turns.set_column(at, turns.field("turn"), pa.array(numbers, pa.int64()))
    return Bucket(as_of_us, **views, chains=relations.chains, repeating=frozenset(turn_numbers))


def later(rows: pa.Table, as_of_us: int) -> dict[SessionId, int]:
    """Return when to recompute each session that has events after `as_of_us`."""
    rows = rows.filter(_is_later(rows, as_of_us)).select(["tenant", "session_id", "ts"])
    first = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min")])
    moments = row_tuples(first, "tenant", "session_id", "ts_min")
    return {SessionId(tenant, session): ts for tenant, session, ts in moments}


def _is_later(rows: pa.Table, as_of_us: int) -> pa.ChunkedArray:
    return pc.greater(rows["ts"].cast(pa.int64()), as_of_us)


def _own_events(
    rows: pa.Table, relations: Relations
) -> tuple[pa.Table, Mapping[str, Sequence[int]]]:
    """Leave out events that a session repeats from its parent.

    Returns also the original turn numbers of repeating sessions: of the events before the first
    own message, then of each own message."""
    held = set(rows["session_id"].unique().to_pylist())
    links = [
        (session, parent, repeats)
        for session, (parent, repeats) in sorted(relations.parents.items())
        if {session, parent} <= held and session not in relations.beside
    ]
    numbers: dict[str, list[int]] = {}
    if links:
        copied = np.zeros(rows.num_rows, bool)
        copied[_repeated_rows(rows, links)] = True
        if copied.any():
            numbers = _turn_numbers(rows, copied)
            rows = rows.filter(pa.array(~copied))
    if relations.beside:
        beside = pa.array(sorted(relations.beside), pa.string())
        rows = rows.filter(pc.invert(pc.is_in(rows["session_id"], beside)))
    return rows, numbers


def _repeated_rows(rows: pa.Table, links: Sequence[tuple[str, str, bool]]) -> list[int]:
    names = ("session_id", "parent_session", "repeats")
    linked = pa.table(dict(zip(names, zip(*links, strict=True), strict=True)))
    ids = pa.concat_arrays([linked[name].combine_chunks() for name in names[:2]])
    at = np.flatnonzero(pc.is_in(rows["session_id"], ids).to_numpy(zero_copy_only=False))
    events = rows.select(_COMPARED).take(at).append_column("number", pa.array(at))
    return [
        row["number"]
        for row in query_rows("repeated_events.sql", {"all_events": events, "links": linked})
    ]


def _turn_numbers(rows: pa.Table, copied: NDArray[np.bool_]) -> dict[str, list[int]]:
    repeating = pc.unique(rows["session_id"].filter(pa.array(copied)))
    at = np.flatnonzero(pc.is_in(rows["session_id"], repeating).to_numpy(zero_copy_only=False))
    begun: defaultdict[str, int] = defaultdict(int)
    numbers: dict[str, list[int]] = {session: [0] for session in repeating.to_pylist()}
    kinds = row_tuples(rows.take(at), "session_id", "type")
    for (session, kind), is_copy in zip(kinds, copied[at].tolist(), strict=True):
        begun[session] += kind == "user_message"
        own = numbers[session]
        if kind == "user_message" and not is_copy:
            own.append(begun[session])
        elif not is_copy and len(own) == 1:
            own[0] = begun[session]
    return numbers
