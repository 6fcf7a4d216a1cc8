"""A bucket of sessions: the tables that rewards are computed from, without any of the lake."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any, ClassVar

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import SessionId
from penstock.lake.view_sources import bucket_views
from penstock_jobs.rewards.followups.judge import Judge
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.rewards.texts.rules import SECOND_RULES, TextRules
from penstock_jobs.rewards.texts.trail import SECOND, TrackedEdit, TrailTerms


@dataclass(frozen=True)
class EditParameters:
    """How persistence is measured. Times are in seconds, lengths in characters."""

    #: No parameter: the version of the reward decides.
    rules: ClassVar[TextRules] = TextRules()
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
        return TrailTerms(windows, self.move_min, self.cells_max, self.rules)


class SecondEditParameters(EditParameters):
    """Of version 2 of the rewards of edits."""

    rules = SECOND_RULES


Columns = Mapping[str, Sequence[str]]


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
    _trails: dict[TrailTerms, dict[str, list[TrackedEdit]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def trails(self, parameters: EditParameters) -> dict[str, list[TrackedEdit]]:
        """What became of each session's edits, by session_id. Lived through once for all rewards
        with the same terms."""
        terms = parameters.terms()
        if terms not in self._trails:
            edits = by_session(
                self.edits, "edit_id", "event_id", "path", "before", "after", "checkpoint"
            )
            looks = by_session(
                self.observations, "event_id", "path", "text", "deleted", "branch_changed"
            )
            turns = by_session(self.turns, "turn")
            events = self.events
            if events.num_rows:
                kinds = pa.array(["vcs_commit", "session_end"])
                events = events.filter(pc.is_in(events["type"], kinds))
            of_events = by_session(events, "event_id", "type", "payload")
            trails = {}
            for session in sorted(edits):
                rows = of_events.get(session, ())
                ends = [
                    row["ts"]
                    for row in rows
                    if row["type"] == "session_end" and row["ts"] <= self.as_of_us
                ]
                commits = ((row, _files_of(row)) for row in rows if row["type"] == "vcs_commit")
                trails[session] = replay(
                    edits[session],
                    looks.get(session, ()),
                    [{**row, "files": files} for row, files in commits if files],
                    turns_us=_turn_starts(turns.get(session, ())),
                    ended_us=max(ends, default=None),
                    as_of_us=self.as_of_us,
                    terms=terms,
                )
            self._trails[terms] = trails
        return self._trails[terms]


#: The tables of a bucket, named as the views that they are.
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


def query_rows(
    file: str, tables: Mapping[str, pa.Table], **parameters: object
) -> list[dict[str, Any]]:
    sql = files("penstock_jobs.rewards").joinpath(file).read_text(encoding="utf-8")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        rows = connection.sql(sql, params=parameters).to_arrow_table()
    names = rows.column_names
    return [dict(zip(names, row, strict=True)) for row in row_tuples(rows, *names)]


def _turn_starts(turns: Iterable[dict[str, Any]]) -> list[int]:
    """When each turn began, by its number; turn 0 is there only if something precedes the first
    message."""
    starts = {row["turn"]: row["ts"] for row in turns}
    if not starts:
        return []
    starts.setdefault(0, min(starts.values()))
    return [starts[turn] for turn in sorted(starts)]


def _files_of(commit: Mapping[str, Any]) -> list[Any]:
    """The list is empty for a commit that carries no texts."""
    try:
        files = msgspec.json.decode(commit["payload"]).get("files")
    except (msgspec.DecodeError, AttributeError):
        return []
    return files if isinstance(files, list) else []


#: What no view shows; of the others the view `events` would be a copy.
_EVENTS = "type IN ('interrupt', 'session_end', 'test_result', 'vcs_commit')"


def as_bucket(rows: pa.Table, tenant: str, as_of_us: int, columns: Columns | None = None) -> Bucket:
    """The sessions of a tenant among these events, as `read_bucket` gives them, up to `as_of_us`:
    what is later may be incomplete, and no reward sees it. Of each view all columns, or these."""
    is_later = _is_later(rows, as_of_us)
    if pc.any(is_later).as_py():
        rows = rows.filter(pc.invert(is_later))
    where = {"events": _EVENTS}
    return Bucket(as_of_us, **bucket_views(rows, tenant, TABLES, columns=columns, where=where))


def later(rows: pa.Table, as_of_us: int) -> dict[SessionId, int]:
    """Of each session with events that `as_bucket` leaves out: the moment of the first of them, at
    which its rewards are to be computed again."""
    rows = rows.filter(_is_later(rows, as_of_us)).select(["tenant", "session_id", "ts"])
    first = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min")])
    moments = row_tuples(first, "tenant", "session_id", "ts_min")
    return {SessionId(tenant, session): ts for tenant, session, ts in moments}


def _is_later(rows: pa.Table, as_of_us: int) -> pa.ChunkedArray:
    return pc.greater(rows["ts"].cast(pa.int64()), as_of_us)
