"""The follow-ups of a bucket of sessions: which messages came after the agent acted.

Pure: Arrow tables in, as the views turns, model_calls, edits and events give them, all rows of
each session of the bucket.
"""

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from penstock_jobs.rewards.followups.judging import Judgement, Message, Tests
from penstock_jobs.rewards.followups.labels import DISSATISFIED

#: Of the view events only these types are looked at; the rest need not be in the table.
EVENT_TYPES = ("interrupt", "session_end", "test_result")

#: What a program wrote in the user's name, or told the client and not the agent.
_MACHINE = re.compile(
    r"\s*(?:<(?:task-notification|system-reminder|local-command|command-name)\b"
    r"|\[Request interrupted by user|/(?!undo|revert|rewind|restore)[a-z][\w:-]*\s*$)"
)
_FILE = re.compile(r"[\w./\\-]*\w\.[A-Za-z]\w{0,7}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Columns that are needed, by view:

    turns        session_id, turn, ts, seq, text, model_calls, tool_calls, edits
    model_calls  session_id, ts, seq, text
    edits        session_id, ts, seq, path
    events       session_id, ts, seq, type, payload
    """

    turns: pa.Table
    model_calls: pa.Table
    edits: pa.Table
    events: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A message of the user after the agent acted."""

    session_id: str
    #: The turn that the message began.
    turn: int
    ts: datetime
    message: Message
    #: The last turn before it in which the agent did anything.
    turn_before: int
    #: The last turn that edited a file which the message names, when that is an earlier one and
    #: the turn before edited none that it names.
    turn_named: int | None
    #: Between the agent's last act and the message.
    seconds_since: float
    #: Whether the user had interrupted the agent in the turn before.
    interrupted: bool

    def target_turn(self, judgement: Judgement) -> int:
        """The turn that the label is about. Only criticism reaches back to the turn that made
        what it names: a new task may name any file."""
        if judgement.label in DISSATISFIED and self.turn_named is not None:
            return self.turn_named
        return self.turn_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The agent acted, and the user has written nothing since.

    Without evidence that is censored, never good: most users who got what they wanted say nothing,
    and so do most who did not. With evidence it is abandons. Whether the user may still write is
    for the caller to say, who knows how late it is.
    """

    session_id: str
    #: The last turn in which the agent did anything.
    turn: int
    ts: datetime
    evidence: Literal["user_stop", "interrupt"] | None


def follow_ups(tables: Tables) -> list[FollowUp]:
    """In the order of sessions and turns. A message before which the agent did nothing, and what a
    program wrote, is none. Of two messages in a row both point at the same turn."""
    return [one for session in _sessions(tables) for one in _follow_ups(session)]


def silences(tables: Tables) -> list[Silence]:
    """One for each session whose last word is the agent's."""
    found = (_silence(session) for session in _sessions(tables))
    return [one for one in found if one is not None]


@dataclass(slots=True)
class _Turn:
    number: int
    ts: datetime
    #: None for what is no message of a person.
    text: str | None
    acted: bool
    said: str = ""
    paths: list[str] = field(default_factory=list)
    tests: Tests | None = None
    last_act: datetime | None = None
    interrupted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Session:
    session_id: str
    turns: list[_Turn]
    stopped_by_user: bool


def _follow_ups(session: _Session) -> Iterator[FollowUp]:
    before: _Turn | None = None
    earlier: list[_Turn] = []
    previous = ""
    for turn in session.turns:
        if turn.text is not None:
            if before is not None:
                yield FollowUp(
                    session_id=session.session_id,
                    turn=turn.number,
                    ts=turn.ts,
                    message=Message(
                        text=turn.text,
                        agent=before.said,
                        previous=previous,
                        edited=bool(before.paths),
                        tests=before.tests,
                    ),
                    turn_before=before.number,
                    turn_named=_turn_named(turn.text, before, earlier),
                    seconds_since=(turn.ts - (before.last_act or before.ts)).total_seconds(),
                    interrupted=before.interrupted_at is not None,
                )
            previous = turn.text
        if turn.acted:
            if before is not None:
                earlier.append(before)
            before = turn


def _silence(session: _Session) -> Silence | None:
    acted = [at for at, turn in enumerate(session.turns) if turn.acted]
    if not acted or any(turn.text is not None for turn in session.turns[acted[-1] + 1 :]):
        return None
    last = session.turns[acted[-1]]
    evidence: Literal["user_stop", "interrupt"] | None = None
    if session.stopped_by_user:
        evidence = "user_stop"
    elif last.interrupted_at and last.interrupted_at >= (last.last_act or last.ts):
        evidence = "interrupt"
    return Silence(
        session_id=session.session_id,
        turn=last.number,
        ts=last.last_act or last.ts,
        evidence=evidence,
    )


def _turn_named(text: str, before: _Turn, earlier: Sequence[_Turn]) -> int | None:
    names = {name.replace("\\", "/").removeprefix("./") for name in _FILE.findall(text)}
    if not names or _edits_any(before, names):
        return None
    return next((turn.number for turn in reversed(earlier) if _edits_any(turn, names)), None)


def _edits_any(turn: _Turn, names: Iterable[str]) -> bool:
    paths = [f"/{path}".replace("\\", "/") for path in turn.paths]
    return any(path.endswith(f"/{name.lstrip('/')}") for path in paths for name in names)


# From tables to turns


def _sessions(tables: Tables) -> Iterator[_Session]:
    calls = _by_session(tables.model_calls, "ts", "seq", "text")
    edits = _by_session(tables.edits, "ts", "seq", "path")
    events = _by_session(tables.events, "ts", "seq", "type", "payload")
    columns = ("turn", "ts", "seq", "text", "model_calls", "tool_calls", "edits")
    turns = _by_session(tables.turns, *columns)
    for session_id in sorted(turns):
        rows = sorted(turns[session_id], key=lambda row: row["turn"])
        found = [_turn(row) for row in rows]
        starts = [_place(row) for row in rows]

        def of(row: dict[str, Any], starts: Any = starts, found: Any = found) -> _Turn:
            return found[max(bisect_right(starts, _place(row)) - 1, 0)]  # type: ignore[no-any-return]

        for row in calls[session_id]:
            turn = of(row)
            turn.said = row["text"] or turn.said
            turn.last_act = row["ts"]
        for row in edits[session_id]:
            turn = of(row)
            turn.paths.append(row["path"] or "")
            turn.last_act = max(row["ts"], turn.last_act or row["ts"])
        ends = [_payload(row) for row in events[session_id] if row["type"] == "session_end"]
        for row in events[session_id]:
            if row["type"] == "test_result":
                turn = of(row)
                turn.tests = _tests(_payload(row)) or turn.tests
            elif row["type"] == "interrupt":
                of(row).interrupted_at = row["ts"]
        stopped = bool(ends) and ends[-1].get("reason") == "user_stop"
        yield _Session(session_id, found, stopped)


def _turn(row: dict[str, Any]) -> _Turn:
    text = row["text"]
    human = text is not None and bool(text.strip()) and not _MACHINE.match(text)
    acted = any(row[name] for name in ("model_calls", "tool_calls", "edits"))
    return _Turn(row["turn"], row["ts"], text if human else None, acted)


def _by_session(table: pa.Table, *columns: str) -> dict[str, list[dict[str, Any]]]:
    """Rows in the order of the views: by time, then by the producer's number."""
    rows = table.select(["session_id", *columns]).to_pylist()
    rows.sort(key=lambda row: (row["session_id"], *_place(row)))
    grouped = groupby(rows, key=lambda row: row["session_id"])
    return defaultdict(list, {session_id: list(held) for session_id, held in grouped})


def _place(row: dict[str, Any]) -> tuple[datetime, bool, int]:
    """Without a number comes last, as in the views."""
    return row["ts"], row["seq"] is None, row["seq"] or 0


def _payload(row: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(row["payload"] or "{}")
    return found if isinstance(found, dict) else {}


def _tests(payload: dict[str, Any]) -> Tests | None:
    ok, failed = payload.get("ok"), payload.get("failed")
    if ok is False or (isinstance(failed, int) and failed > 0):
        return "failed"
    if ok is True or payload.get("passed"):
        return "passed"
    return None
