"""Follow-ups of a bucket: messages of a conversation after the agent acted."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket, ChainMember, TurnKey
from penstock_jobs.rewards.followups.judge import Message, Tests
from penstock_jobs.rewards.rows import payload_fields, row_tuples

#: Also messages that a program wrote, and commands that clear the agent's memory.
_EVENT_TYPES = ("interrupt", "session_end", "test_result", "user_message", "x_context")
#: Messages that a program wrote in the user's name, or commands to the client.
_MACHINE = re.compile(
    r"\s*(?:<(?:task-notification|system-reminder|local-command|command-name)\b"
    r"|\[Request interrupted by user|/(?!undo|revert|rewind|restore)[a-z][\w:-]*\s*$"
    # The summary with which a compaction begins the next session.
    r"|This session is being continued from a previous conversation\b)"
)
_Place = tuple[int, bool, int]
Evidence = Literal["user_stop", "interrupt"] | None


class FollowUp(msgspec.Struct, frozen=True):
    session_id: str
    turn: int
    message: Message
    #: The last earlier turn in which the agent acted, perhaps in an earlier session.
    turn_before: TurnKey


@dataclass(slots=True)
class SessionTurn:
    """A turn. Times are in microseconds since 1970."""

    session_id: str
    number: int
    ts: int
    #: None if no person wrote a message.
    text: str | None
    acted: bool
    checkpoint: str | None = None
    agent_text: str = ""
    paths: list[str] = field(default_factory=list)
    tests: Tests | None = None
    #: When tests ran last, and the share that passed if it is known.
    test_run: tuple[int, float | None] | None = None
    liked: int = 0
    disliked: int = 0
    #: The user cleared the agent's memory in it.
    cleared: bool = False
    last_act: int = 0
    last_edit: int = 0
    interrupted_at: int | None = None

    @property
    def key(self) -> TurnKey:
        return self.session_id, self.number


class SessionTurns(msgspec.Struct, frozen=True):
    session_id: str
    turns: list[SessionTurn]
    stopped_by_user: bool


def follow_ups(sessions: Iterable[SessionTurns]) -> Iterator[FollowUp]:
    """Yield follow-ups in order. Between two messages in a row the agent said and did nothing."""
    for session in sessions:
        before: SessionTurn | None = None
        answered, previous = False, ""
        for turn in session.turns:
            if turn.text is not None:
                if before is not None:
                    message = Message(
                        text=turn.text,
                        agent=before.agent_text if answered else "",
                        previous=previous,
                        edited=answered and bool(before.paths),
                        tests=before.tests,
                    )
                    yield FollowUp(*turn.key, message, before.key)
                answered, previous = False, turn.text
            if turn.acted:
                before, answered = turn, True


def silences(sessions: Iterable[SessionTurns]) -> Iterator[tuple[TurnKey, Evidence]]:
    """Yield the last turn of sessions that end with the agent, and evidence against it.

    Without evidence the turn is censored, never good: most sessions end so, good or bad."""
    for session in sessions:
        spoken = [turn for turn in session.turns if turn.acted or turn.text is not None]
        if not spoken or not (last := spoken[-1]).acted:
            continue
        interrupted = last.interrupted_at and last.interrupted_at >= last.last_act
        evidence: Evidence = "user_stop" if session.stopped_by_user else None
        yield last.key, evidence or ("interrupt" if interrupted else None)


def chain_conversations(
    sessions: Iterable[SessionTurns], chains: Mapping[str, ChainMember]
) -> Iterator[SessionTurns]:
    """Join sessions of a chain into one conversation. In a subagent's session nobody speaks."""
    parts: dict[tuple[str, bool], list[SessionTurns]] = {}
    for session in sessions:
        place = chains.get(session.session_id, ChainMember(session.session_id))
        talk = session.session_id if place.subagent else place.chain
        parts.setdefault((talk, place.subagent), []).append(session)
    for (_, is_subagent), own in parts.items():
        if is_subagent:
            for turn in own[0].turns:
                turn.text = None
        if len(own) == 1:
            yield own[0]
            continue
        turns = [turn for session in own for turn in session.turns]
        turns.sort(key=lambda turn: (turn.ts, turn.key))
        last = next(session for session in own if session.session_id == turns[-1].session_id)
        yield SessionTurns(own[0].session_id, turns, last.stopped_by_user)


def session_turns(
    turns: pa.Table, model_calls: pa.Table, edits: pa.Table, feedback: pa.Table, events: pa.Table
) -> Iterator[SessionTurns]:
    columns = ("turn", "text", "checkpoint", "model_calls", "tool_calls", "edits")
    turn_rows = _by_session(turns, *columns)
    calls_of = _by_session(model_calls, "text")
    edits_of = _by_session(edits, "path")
    feedback_of = _by_session(feedback, "positive")
    events_of = _by_session(events, "type", "payload")
    for session_id, rows in sorted(turn_rows.items()):
        own: list[SessionTurn] = []
        for place, number, text, checkpoint, *acts in rows:
            said = text if text and text.strip() and not _MACHINE.match(text) else None
            own.append(SessionTurn(session_id, number, place[0], said, any(acts), checkpoint))
        starts = [row[0] for row in rows]
        for place, text in calls_of.get(session_id, ()):
            turn = own[_turn_at(starts, place)]
            turn.agent_text = text or turn.agent_text
            turn.last_act = place[0]
        for place, path in edits_of.get(session_id, ()):
            turn = own[_turn_at(starts, place)]
            turn.paths.append(path or "")
            turn.last_edit = place[0]
            turn.last_act = max(place[0], turn.last_act)
        for place, positive in feedback_of.get(session_id, ()):
            turn = own[_turn_at(starts, place)]
            turn.liked += positive is True
            turn.disliked += positive is False
        stopped = False
        for place, kind, payload in events_of.get(session_id, ()):
            turn = own[_turn_at(starts, place)]
            if kind == "test_result":
                result = payload_fields(payload)
                turn.tests = outcome_of_tests(result) or turn.tests
                turn.test_run = place[0], _passed(result)
            elif kind == "user_message":
                turn.text = None
            elif kind == "x_context":
                turn.cleared = True
            elif kind == "interrupt":
                turn.interrupted_at = place[0]
            elif kind == "session_end":
                stopped = payload_fields(payload).get("reason") == "user_stop"
        for turn in own:
            turn.last_act = turn.last_act or turn.ts
        yield SessionTurns(session_id, own, stopped)


def _turn_at(starts: Sequence[_Place], place: _Place) -> int:
    return max(bisect_right(starts, place) - 1, 0)


def _by_session(table: pa.Table, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Group rows by session: place and columns, ordered by time and the producer's number.

    A row without a number comes last."""
    rows = [
        (session_id, (ts, seq is None, seq or 0), *row)
        for session_id, ts, seq, *row in row_tuples(table, "session_id", "ts", "seq", *columns)
    ]
    by_session: dict[str, list[tuple[Any, ...]]] = {}
    for session_id, *row in sorted(rows, key=itemgetter(0, 1)):
        by_session.setdefault(session_id, []).append(tuple(row))
    return by_session


def outcome_of_tests(result: Mapping[str, Any]) -> Tests | None:
    ok, failed = result.get("ok"), result.get("failed")
    if ok is False or (isinstance(failed, int) and failed > 0):
        return "failed"
    if ok is True or result.get("passed"):
        return "passed"
    return None


def _passed(result: Mapping[str, Any]) -> float | None:
    passed, failed = (
        count if isinstance(count := result.get(name), int) else 0 for name in ("passed", "failed")
    )
    if passed + failed > 0:
        return passed / (passed + failed)
    return float(ok) if isinstance(ok := result.get("ok"), bool) else None


def sessions_of(bucket: Bucket) -> list[SessionTurns]:
    def made() -> list[SessionTurns]:
        events = bucket.events.filter(pc.is_in(bucket.events["type"], pa.array(_EVENT_TYPES)))
        tables = (bucket.turns, bucket.model_calls, bucket.edits, bucket.feedback, events)
        turns = session_turns(*tables)
        return list(chain_conversations(turns, bucket.chains))

    return bucket.once("chain_conversations", made)


def follow_ups_of(bucket: Bucket) -> list[FollowUp]:
    return bucket.once("follow-ups", lambda: list(follow_ups(sessions_of(bucket))))
