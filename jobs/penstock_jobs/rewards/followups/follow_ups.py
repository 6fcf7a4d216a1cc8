"""The follow-ups of a bucket of sessions: which messages came after the agent acted, and the rows
of a reward that a judge makes of them. Pure: Arrow tables in, rows out."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    Judge,
    Judgement,
    Label,
    Message,
    Tests,
)
from penstock_jobs.rewards.measures.turns import TurnScore, score_turns
from penstock_jobs.rewards.rows import row_tuples

#: Of the view `events` only these types are looked at; the rest need not be in the table.
EVENT_TYPES = ("interrupt", "session_end", "test_result")

#: Messages that a program wrote in the user's name, or that are for the client alone.
_MACHINE = re.compile(
    r"\s*(?:<(?:task-notification|system-reminder|local-command|command-name)\b"
    r"|\[Request interrupted by user|/(?!undo|revert|rewind|restore)[a-z][\w:-]*\s*$)"
)
#: Only from where a name may begin: a long line without spaces costs no more than its length.
_FILE = re.compile(r"(?<![\w./\\-])[\w./\\-]*\w\.[A-Za-z]\w{0,7}\b")

#: Time in microseconds, whether there is no number, and the number.
_Place = tuple[int, bool, int]
#: Why a session counts as abandoned.
Evidence = Literal["user_stop", "interrupt"] | None


def is_from_a_person(text: str) -> bool:
    return bool(text.strip()) and not _MACHINE.match(text)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A message of the user after the agent acted."""

    session_id: str
    turn: int
    message: Message
    #: The last turn before it in which the agent did anything.
    turn_before: int
    #: The last turn that edited a file which the message names, when that is an earlier one and
    #: the turn before edited none that it names.
    turn_named: int | None

    def target_turn(self, label: Label) -> int:
        """The turn that the label is about. Only criticism reaches back to the turn that made
        what it names: a new task may name any file."""
        if label in DISSATISFIED and self.turn_named is not None:
            return self.turn_named
        return self.turn_before


@dataclass(slots=True)
class SessionTurn:
    """Times are in microseconds since 1970."""

    number: int
    ts: int
    #: None for what is no message of a person.
    text: str | None
    acted: bool
    agent_text: str = ""
    paths: list[str] = field(default_factory=list)
    tests: Tests | None = None
    last_act: int = 0
    interrupted_at: int | None = None

    def edits_any(self, names: Collection[str]) -> bool:
        paths = [f"/{path}".replace("\\", "/") for path in self.paths]
        return any(path.endswith(f"/{name.lstrip('/')}") for path in paths for name in names)


@dataclass(frozen=True, slots=True)
class SessionTurns:
    session_id: str
    turns: list[SessionTurn]
    stopped_by_user: bool


def follow_ups(sessions: Iterable[SessionTurns]) -> Iterator[FollowUp]:
    """In the order of sessions and turns. A message before which the agent did nothing, and what a
    program wrote, is none. Of two messages in a row both point at the same turn."""
    for session in sessions:
        before: SessionTurn | None = None
        earlier: list[SessionTurn] = []
        previous = ""
        for turn in session.turns:
            if turn.text is not None:
                if before is not None:
                    message = Message(
                        text=turn.text,
                        agent=before.agent_text,
                        previous=previous,
                        edited=bool(before.paths),
                        tests=before.tests,
                    )
                    named = _turn_named(turn.text, before, earlier)
                    yield FollowUp(session.session_id, turn.number, message, before.number, named)
                previous = turn.text
            if turn.acted:
                if before is not None:
                    earlier.append(before)
                before = turn


def silences(sessions: Iterable[SessionTurns]) -> Iterator[tuple[str, int, Evidence]]:
    """The session, the agent's last turn and the evidence of each session whose last word is the
    agent's. Without evidence that is censored, never good: most users who got what they wanted say
    nothing, and so do most who did not. With evidence it is abandons."""
    for session in sessions:
        spoken = [turn for turn in session.turns if turn.acted or turn.text is not None]
        if not spoken or not (last := spoken[-1]).acted:
            continue
        interrupted = last.interrupted_at and last.interrupted_at >= last.last_act
        evidence: Evidence = "user_stop" if session.stopped_by_user else None
        yield session.session_id, last.number, evidence or ("interrupt" if interrupted else None)


def _turn_named(text: str, before: SessionTurn, earlier: Sequence[SessionTurn]) -> int | None:
    names = {name.replace("\\", "/").removeprefix("./") for name in _FILE.findall(text)}
    if not names or before.edits_any(names):
        return None
    return next((turn.number for turn in reversed(earlier) if turn.edits_any(names)), None)


def session_turns(
    turns: pa.Table, model_calls: pa.Table, edits: pa.Table, events: pa.Table
) -> Iterator[SessionTurns]:
    """In the order of sessions, from rows of the views of these names."""
    turn_rows = _by_session(turns, "turn", "text", "model_calls", "tool_calls", "edits")
    calls_of = _by_session(model_calls, "text")
    edits_of = _by_session(edits, "path")
    events_of = _by_session(events, "type", "payload")
    for session_id, rows in sorted(turn_rows.items()):
        own = []
        for place, number, text, *acts in rows:
            human = text is not None and is_from_a_person(text)
            own.append(SessionTurn(number, place[0], text if human else None, any(acts)))
        starts = [row[0] for row in rows]

        def turn_at(
            place: _Place, own: list[SessionTurn] = own, starts: list[_Place] = starts
        ) -> SessionTurn:
            return own[max(bisect_right(starts, place) - 1, 0)]

        for place, text in calls_of.get(session_id, ()):
            turn = turn_at(place)
            turn.agent_text = text or turn.agent_text
            turn.last_act = place[0]
        for place, path in edits_of.get(session_id, ()):
            turn = turn_at(place)
            turn.paths.append(path or "")
            turn.last_act = max(place[0], turn.last_act)
        stopped = False
        for place, kind, payload in events_of.get(session_id, ()):
            turn = turn_at(place)
            if kind == "test_result":
                turn.tests = _test_result(payload) or turn.tests
            elif kind == "interrupt":
                turn.interrupted_at = place[0]
            elif kind == "session_end":
                stopped = _fields(payload).get("reason") == "user_stop"
        for turn in own:
            turn.last_act = turn.last_act or turn.ts
        yield SessionTurns(session_id, own, stopped)


def _by_session(table: pa.Table, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Where each row stands, and the named columns of it, in the order of the views: by time, then
    by the producer's number. Without a number comes last."""
    rows = [
        (session_id, (ts, seq is None, seq or 0), *row)
        for session_id, ts, seq, *row in row_tuples(table, "session_id", "ts", "seq", *columns)
    ]
    by_session: dict[str, list[tuple[Any, ...]]] = {}
    for session_id, *row in sorted(rows, key=itemgetter(0, 1)):
        by_session.setdefault(session_id, []).append(tuple(row))
    return by_session


def _fields(payload: str | None) -> dict[str, Any]:
    fields = msgspec.json.decode(payload or "{}")
    return fields if isinstance(fields, dict) else {}


def _test_result(payload: str | None) -> Tests | None:
    fields = _fields(payload)
    ok, failed = fields.get("ok"), fields.get("failed")
    if ok is False or (isinstance(failed, int) and failed > 0):
        return "failed"
    if ok is True or fields.get("passed"):
        return "passed"
    return None


def score_follow_ups(
    name: str, bucket: Bucket, judge: Judge, no_train: Collection[str] = ()
) -> pa.Table:
    """− the probability of dissatisfied of each turn that the agent acted in, as the judge sees
    it, and of its session. Messages of the sessions `no_train` are not shown to the judge."""
    events = bucket.events.filter(pc.is_in(bucket.events["type"], pa.array(EVENT_TYPES)))
    sessions = list(session_turns(bucket.turns, bucket.model_calls, bucket.edits, events))
    scores: dict[tuple[str, int], TurnScore] = {}
    shown = []
    for follow_up in follow_ups(sessions):
        if follow_up.session_id in no_train:
            scores[follow_up.session_id, follow_up.turn_before] = TurnScore(None, "no_train")
        else:
            shown.append(follow_up)
    judgements = judge.judge([follow_up.message for follow_up in shown])
    for follow_up, judgement in zip(shown, judgements, strict=True):
        if isinstance(judgement, Judgement):
            score = TurnScore(0.0 - judgement.dissatisfied)
            turn = (follow_up.session_id, follow_up.target_turn(judgement.label))
        else:
            score = TurnScore(None, judgement)
            turn = (follow_up.session_id, follow_up.turn_before)
        # An unknown score is no worse than a known one.
        worse = scores.get(turn, score), score
        scores[turn] = min(worse, key=lambda known: 1.0 if known.value is None else known.value)
    for session, number, evidence in silences(sessions):
        scores[session, number] = TurnScore(-1.0) if evidence else TurnScore(None, "silence")
    return score_turns(name, bucket, lambda turn: scores.get((turn["session_id"], turn["turn"])))
