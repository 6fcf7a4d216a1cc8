"""Hints: what later events say about a sampled call, as text for a teacher.

A `HintSource` finds the hints of a chain of sessions. A hint never labels anything by itself.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import msgspec

from penstock_jobs.rewards.bucket import TurnKey
from penstock_jobs.rewards.followups.follow_ups import FollowUp
from penstock_jobs.shards.conversation.conversation import ChatMessage, Conversation, ModelCall
from penstock_jobs.shards.conversation.session_events import text_of
from penstock_jobs.shards.rows.preferences import Correction
from penstock_jobs.shards.rows.token_credit import CreditedCall, EditMark, call_of, credited_calls


class CallPlace(NamedTuple):
    """A model call: its session, and its number in the conversation."""

    session_id: str
    number: int


@dataclass(frozen=True)
class Hint:
    text: str
    #: The name of its source.
    kind: str
    #: The call that it is about.
    call: CallPlace
    #: The event that it came from.
    session_id: str
    event_id: str | None
    #: False if it holds the solution, at least in part.
    answer_free: bool = True


#: Writes a sentence from each group of hints, each of one session; None if it cannot.
WriteHints = Callable[[Sequence[Sequence[Hint]]], Iterable[str | None]]


class Report(NamedTuple):
    """An event that may hold a hint: a tool's result, a run of tests, or feedback."""

    session_id: str
    ts_us: int
    seq: int | None
    event_id: str | None
    type: str
    payload: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.payload.get(name)
        return value.strip() if isinstance(value, str) else ""


# The faulty call: which of an agent's calls a correction is about


#: Tools that only look have one of these words in their names, as in `read_file` or `webSearch`.
_LOOKS = re.compile(
    r"(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))"
    r"(?i:read|view|list|search|grep|glob|find|fetch|look|cat|ls|open)(?![a-z])"
)
#: Words that look like names in code: with a dot, a slash, an underscore, a digit or a capital
#: within them; and what stands between backticks.
_NAME = re.compile(r"`([^`\n]{2,80})`|([A-Za-z_][\w]*(?:[./_-][\w]+)+|[A-Za-z]+(?:[A-Z0-9][\w]*)+)")
_NAME_CHARS_MIN = 3


class CallFacts(NamedTuple):
    """A call. `acted`: it edited, or called a tool that does more than look."""

    ts_us: int
    turn: int
    arguments: str
    acted: bool
    edited: bool

    @classmethod
    def of(cls, call: ModelCall, *, edited: bool) -> Self:
        tools = call.payload.tool_calls or ()
        acted = edited or any(not _LOOKS.search(tool.name) for tool in tools)
        arguments = "\n".join(text_of(tool.arguments) for tool in tools)
        return cls(call.event.ts_us, call.turn, arguments, acted, edited)


def faulty_call(calls: Sequence[CallFacts], last: int, text: str) -> int:
    """Find the call that a correction is about, by its number.

    `calls` are the request's so far, by time; from `last` on they are of its last turn. What the
    text names decides first, then the last edit, then the last act, then the last call."""
    names = names_in(text)
    named = [sum(name in call.arguments for name in names) for call in calls]
    acts = [n for n, call in enumerate(calls) if call.acted]
    choices = (
        [n for n, count in enumerate(named) if 0 < count == max(named)],
        [n for n in acts if n >= last],
        acts,
        [len(calls) - 1],
    )
    chosen = next(filter(None, choices))
    edits = [n for n in chosen if calls[n].edited]
    return (edits or [n for n in chosen if n in acts] or chosen)[-1]


def names_in(text: str) -> set[str]:
    """Return words of a text that look like names in code."""
    found = (match[1] or match[2] for match in _NAME.finditer(text))
    return {name for name in found if len(name) >= _NAME_CHARS_MIN}


# A chain, as sources see it


@dataclass(frozen=True)
class ToldChain:
    """A chain of sessions with what was said of its calls. Mappings are by session."""

    conversations: Mapping[str, Conversation]
    #: Messages that say what was wrong with the work before.
    messages: Sequence[FollowUp] = ()
    reports: Sequence[Report] = ()
    corrections: Mapping[str, Sequence[Correction]] = field(default_factory=dict)
    edits: Mapping[str, Sequence[EditMark]] = field(default_factory=dict)
    #: The request of each turn; unknown turns are requests of their own.
    requests: Mapping[TurnKey, int] = field(default_factory=dict)
    #: What other sources found, for a model that writes.
    hints: Sequence[Hint] = ()
    write: WriteHints | None = None

    @cached_property
    def _credited(self) -> dict[str, list[CreditedCall]]:
        return {name: credited_calls(own) for name, own in self.conversations.items()}

    @cached_property
    def calls(self) -> list[tuple[CallPlace, CallFacts]]:
        """List all calls that the model wrote here for the first time, by time."""
        edited = {self.call_of(name, mark) for name, marks in self.edits.items() for mark in marks}
        calls = [
            (place, CallFacts.of(call, edited=place in edited))
            for name, own in self.conversations.items()
            for call in own.calls
            if not call.flags & {"copied", "synthetic", "summary"}
            for place in [CallPlace(name, call.number)]
        ]
        return sorted(calls, key=lambda own: (own[1].ts_us, own[0]))

    def call_of(self, session: str, mark: EditMark) -> CallPlace | None:
        """Find the call that a mark names, else the last one before it."""
        number = call_of(self._credited.get(session, ()), mark)
        return None if number < 0 else CallPlace(session, number)

    def call_named(self, session: str, name: str) -> CallPlace | None:
        """Find a call by its id, a tool call's id, or an edit's name."""
        for mark in self.edits.get(session, ()):
            if mark.name == name:
                return self.call_of(session, mark)
        calls = enumerate(self._credited.get(session, ()))
        return next(
            (CallPlace(session, number) for number, call in calls if name in call.ids), None
        )

    def faulty_call(
        self, turn: TurnKey, text: str, *, until_us: int | None = None
    ) -> CallPlace | None:
        """Find the call of a turn, or of its request so far, that a text is about."""
        request = self.requests.get(turn, -1)
        before: list[tuple[CallPlace, CallFacts]] = []
        last: list[tuple[CallPlace, CallFacts]] = []
        for own in self.calls:
            key = own[0].session_id, own[1].turn
            if until_us is not None and own[1].ts_us > until_us:
                break
            if key == turn:
                last.append(own)
            elif self.requests.get(key) == request:
                before.append(own)
        if not last:
            return None
        before = [own for own in before if own[1].ts_us <= last[-1][1].ts_us]
        calls = [*before, *last]
        return calls[faulty_call([facts for _, facts in calls], len(before), text)][0]

    def message_at(self, session: str, turn: int) -> ChatMessage | None:
        """Find the user's message that begins a turn."""
        told = self.conversations[session].messages
        return next((each for each in told if (each.role, each.turn) == ("user", turn)), None)

    def turn_at(self, session: str, ts_us: int) -> TurnKey | None:
        """Return the turn of the last call before a moment."""
        turns = [
            own.turn
            for place, own in self.calls
            if place.session_id == session and own.ts_us <= ts_us
        ]
        return (session, turns[-1]) if turns else None


class HintSource(msgspec.Struct, frozen=True):
    """A source of hints, by the name that recipes call it."""

    name: str
    find: Callable[[ToldChain], Iterable[Hint]]
    #: Whether its hints hold the solution.
    solves: bool = False
