"""The follow-ups of a bucket of sessions: which messages came after the agent acted, and the rows
of a reward that a judge makes of them. Pure: Arrow tables in, rows out."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.followups.judge import DISSATISFIED, Judge, Judgement, Message, Tests
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns

#: Of the view events only these types are looked at; the rest need not be in the table.
EVENT_TYPES = ("interrupt", "session_end", "test_result")

#: What a program wrote in the user's name, or told the client and not the agent.
_MACHINE = re.compile(
    r"\s*(?:<(?:task-notification|system-reminder|local-command|command-name)\b"
    r"|\[Request interrupted by user|/(?!undo|revert|rewind|restore)[a-z][\w:-]*\s*$)"
)
#: Only from where a name may begin: a long line without spaces costs no more than its length.
_FILE = re.compile(r"(?<![\w./\\-])[\w./\\-]*\w\.[A-Za-z]\w{0,7}\b")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Time in microseconds, whether there is no number, and the number.
_Place = tuple[int, bool, int]


@dataclass(frozen=True, kw_only=True)
class FollowUpTables:
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

    @cached_property
    def sessions(self) -> list["_Session"]:
        return list(_sessions(self))


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


def follow_ups(tables: FollowUpTables) -> list[FollowUp]:
    """In the order of sessions and turns. A message before which the agent did nothing, and what a
    program wrote, is none. Of two messages in a row both point at the same turn."""
    return [one for session in tables.sessions for one in _follow_ups(session)]


def silences(tables: FollowUpTables) -> list[Silence]:
    """One for each session whose last word is the agent's."""
    found = (_silence(session) for session in tables.sessions)
    return [one for one in found if one is not None]


@dataclass(slots=True)
class _Turn:
    """Times are in microseconds since 1970."""

    number: int
    ts: int
    #: None for what is no message of a person.
    text: str | None
    acted: bool
    said: str = ""
    paths: list[str] = field(default_factory=list)
    tests: Tests | None = None
    last_act: int | None = None
    interrupted_at: int | None = None


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
                    ts=_datetime(turn.ts),
                    message=Message(
                        text=turn.text,
                        agent=before.said,
                        previous=previous,
                        edited=bool(before.paths),
                        tests=before.tests,
                    ),
                    turn_before=before.number,
                    turn_named=_turn_named(turn.text, before, earlier),
                    seconds_since=(turn.ts - _last_act(before)) / 1e6,
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
    elif last.interrupted_at and last.interrupted_at >= _last_act(last):
        evidence = "interrupt"
    return Silence(
        session_id=session.session_id,
        turn=last.number,
        ts=_datetime(_last_act(last)),
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


def _last_act(turn: _Turn) -> int:
    return turn.ts if turn.last_act is None else turn.last_act


def _datetime(ts: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ts)


# From tables to turns


class _TurnTimes:
    """The turns of one session, and in which of them something happened."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        ordered = sorted(rows, key=itemgetter(1))
        self.turns = [_turn(*row) for row in ordered]
        self._starts = [place for place, *_ in ordered]

    def turn_at(self, place: _Place) -> _Turn:
        return self.turns[max(bisect_right(self._starts, place) - 1, 0)]


def _sessions(tables: FollowUpTables) -> Iterator[_Session]:
    columns = ("turn", "text", "model_calls", "tool_calls", "edits")
    turns = _by_session(tables.turns, *columns)
    calls = _by_session(tables.model_calls, "text")
    edits = _by_session(tables.edits, "path")
    events = _by_session(tables.events, "type", "payload")
    for session_id in sorted(turns):
        told = _TurnTimes(turns[session_id])
        for place, text in calls.get(session_id, ()):
            turn = told.turn_at(place)
            turn.said = text or turn.said
            turn.last_act = place[0]
        for place, path in edits.get(session_id, ()):
            turn = told.turn_at(place)
            turn.paths.append(path or "")
            turn.last_act = max(place[0], turn.last_act or place[0])
        stopped = False
        for place, kind, payload in events.get(session_id, ()):
            if kind == "test_result":
                turn = told.turn_at(place)
                turn.tests = _tests(_fields(payload)) or turn.tests
            elif kind == "interrupt":
                told.turn_at(place).interrupted_at = place[0]
            elif kind == "session_end":
                stopped = _fields(payload).get("reason") == "user_stop"
        yield _Session(session_id, told.turns, stopped)


def _turn(place: _Place, number: int, text: str | None, *acts: int) -> _Turn:
    human = text is not None and bool(text.strip()) and not _MACHINE.match(text)
    return _Turn(number, place[0], text if human else None, any(acts))


def _by_session(table: pa.Table, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Where each row stands, and the named columns of it, in the order of the views: by time, then
    by the producer's number. Without a number comes last."""
    times, numbers = table["ts"].cast(pa.int64()).to_pylist(), table["seq"].to_pylist()
    places = [(ts, seq is None, seq or 0) for ts, seq in zip(times, numbers, strict=True)]
    values = [table[name].to_pylist() for name in columns]
    rows = zip(table["session_id"].to_pylist(), places, *values, strict=True)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for session_id, *row in sorted(rows, key=itemgetter(0, 1)):
        found.setdefault(session_id, []).append(tuple(row))
    return found


def _fields(payload: str | None) -> dict[str, Any]:
    found = msgspec.json.decode(payload or "{}")
    return found if isinstance(found, dict) else {}


def _tests(payload: dict[str, Any]) -> Tests | None:
    ok, failed = payload.get("ok"), payload.get("failed")
    if ok is False or (isinstance(failed, int) and failed > 0):
        return "failed"
    if ok is True or payload.get("passed"):
        return "passed"
    return None


_Scores = dict[tuple[str, int], TurnScore]


def score_follow_ups(
    name: str, bucket: Bucket, judge: Judge, no_train: Collection[str] = ()
) -> pa.Table:
    """− the probability of dissatisfied of each turn that the agent acted in, as the judge sees
    it, and of its session. Messages of the sessions `no_train` are not shown to the judge."""
    events = bucket.events.filter(pc.is_in(bucket.events["type"], pa.array(EVENT_TYPES)))
    tables = FollowUpTables(
        turns=bucket.turns, model_calls=bucket.model_calls, edits=bucket.edits, events=events
    )
    scores = _judged(tables, judge, no_train) | _silent(tables)
    return score_turns(name, bucket, lambda turn: scores.get(_key(turn)))


def _judged(tables: FollowUpTables, judge: Judge, no_train: Collection[str]) -> _Scores:
    found = follow_ups(tables)
    shown = [one for one in found if one.session_id not in no_train]
    scores: _Scores = {
        (one.session_id, one.turn_before): TurnScore(None, "no_train")
        for one in found
        if one.session_id in no_train
    }
    judgements = judge.judge([one.message for one in shown])
    for one, judgement in zip(shown, judgements, strict=True):
        if judgement.unjudged is not None:
            score = TurnScore(None, judgement.unjudged)
        else:
            score = TurnScore(0.0 - judgement.dissatisfied)
        turn = (one.session_id, one.target_turn(judgement))
        scores[turn] = min(scores.get(turn, score), score, key=_badness)
    return scores


def _silent(tables: FollowUpTables) -> _Scores:
    return {
        (one.session_id, one.turn): TurnScore(-1.0) if one.evidence else TurnScore(None, "silence")
        for one in silences(tables)
    }


def _badness(score: TurnScore) -> float:
    """What is not known is no worse than what is."""
    return 1.0 if score.value is None else score.value


def _key(turn: dict[str, Any]) -> tuple[str, int]:
    return turn["session_id"], turn["turn"]
