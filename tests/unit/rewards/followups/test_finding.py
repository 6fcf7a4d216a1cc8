"""Which messages are follow-ups, and of what."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock_jobs.rewards.followups.follow_ups import (
    FollowUp,
    SessionTurns,
    follow_ups,
    session_turns,
    silences,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Session:
    """Writes the rows of the views, a second a step."""

    def __init__(self, session_id: str = "s") -> None:
        self._id = session_id
        self._step = 0
        self.turns: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.edits: list[dict[str, Any]] = []
        self.feedback: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def user(self, text: str | None, after: int = 1) -> "Session":
        counts = {"model_calls": 0, "tool_calls": 0, "edits": 0}
        row = {**self._at(after), "turn": len(self.turns) + 1, "text": text, **counts}
        self.turns.append(row)
        return self

    def says(self, text: str | None) -> "Session":
        self.calls.append({**self._at(), "text": text})
        self.turns[-1]["model_calls"] += 1
        return self

    def edit(self, path: str) -> "Session":
        self.edits.append({**self._at(), "path": path})
        self.turns[-1]["edits"] += 1
        return self

    def event(self, kind: str, **payload: object) -> "Session":
        self.events.append({**self._at(), "type": kind, "payload": json.dumps(payload)})
        return self

    def _at(self, after: int = 1) -> dict[str, Any]:
        self._step += after
        ts = BEGIN + timedelta(seconds=self._step)
        return {"session_id": self._id, "ts": ts, "seq": self._step}


def turns_of(*sessions: Session) -> list[SessionTurns]:
    place = [("session_id", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("seq", pa.int64())]
    counts = [(name, pa.int64()) for name in ("turn", "model_calls", "tool_calls", "edits")]
    said = [("text", pa.string()), ("checkpoint", pa.string())]

    def table(name: str, *more: tuple[str, Any]) -> pa.Table:
        rows = [row for session in sessions for row in getattr(session, name)]
        return pa.Table.from_pylist(rows[::-1], pa.schema([*place, *more]))

    turns = session_turns(
        turns=table("turns", *said, *counts),
        model_calls=table("calls", ("text", pa.string())),
        edits=table("edits", ("path", pa.string())),
        feedback=table("feedback", ("positive", pa.bool_())),
        events=table("events", ("type", pa.string()), ("payload", pa.string())),
    )
    return list(turns)


def found_in(session: Session) -> list[FollowUp]:
    return list(follow_ups(turns_of(session)))


def test_a_message_after_the_agent_acted() -> None:
    session = Session().user("add a").says("on it").edit("a.py").says("done").says(None)
    session.event("test_result", ok=False).user("no", after=60)
    [found] = found_in(session)
    assert (found.session_id, found.turn, found.turn_before) == ("s", 2, ("s", 1))
    message = found.message
    assert (message.text, message.agent, message.previous) == ("no", "done", "add a")
    assert (message.edited, message.tests) == (True, "failed")


def test_of_two_messages_in_a_row_both_are_about_the_same_turn() -> None:
    """What comes before the agent acted is about none."""
    session = Session().user("add a").user("in python").says("done").user("no").user("/undo")
    assert [(one.turn, one.turn_before) for one in found_in(session)] == [
        (3, ("s", 2)),
        (4, ("s", 2)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        None,
        " ",
        "[Request interrupted by user for tool use]",
        "<task-notification>done</task-notification>",
        "/compact",
    ],
)
def test_what_no_person_wrote_is_none_and_hides_nothing(text: str | None) -> None:
    session = Session().user("add a").says("done").user(text).user("wrong")
    [found] = found_in(session)
    assert (found.turn, found.turn_before, found.message.previous) == (3, ("s", 1), "add a")


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (Session().user("1").says("a").user("2").says("b"), [(2, None)]),
        (Session().user("add a").says("done").user("thanks"), []),
        (
            Session().user("1").says("a").event("session_end", reason="user_stop"),
            [(1, "user_stop")],
        ),
        (Session().user("1").says("a").event("session_end", reason="completed"), [(1, None)]),
        (Session().user("1").says("a").event("interrupt"), [(1, "interrupt")]),
        # The agent went on.
        (Session().user("1").event("interrupt").says("going on"), [(1, None)]),
    ],
)
def test_silence_is_evidence_only_where_the_user_stopped_it(
    session: Session, found: list[tuple[int, str | None]]
) -> None:
    assert [(turn, why) for (_, turn), why in silences(turns_of(session))] == found


@pytest.mark.parametrize("payload", [None, "[]", '{"failed": "many"}'])
def test_unfit_payloads_tell_nothing(payload: str | None) -> None:
    session = Session().user("add a").says("done").event("test_result")
    session.events[-1]["payload"] = payload
    [found] = found_in(session.user("ok"))
    assert found.message.tests is None
