"""The faulty call: which of an agent's calls a correction is about."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Self

from penstock_jobs.shards.conversation.conversation import ModelCall
from penstock_jobs.shards.conversation.session_events import text_of

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
