"""Regenerations: answers that somebody asked for again, and what took their place.

A try is all that the model said and tools answered from one call on. A later call of the same turn
takes its place where its producer says so (`regenerates`), where an engine was given the very same
prompt again, or where the user refused an answer and the model gave another without being told
anything new. The model never saw the try that was taken back when it wrote the other. Sessions that
are attempts at a task sample from one prompt on purpose: there only what the producer says counts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
from msgspec import Raw

from penstock_jobs.shards.conversation import (
    ChatContext,
    ChatMessage,
    Flag,
    ModelCall,
    Regeneration,
)

_NOT_ASKED: frozenset[Flag] = frozenset({"copied", "synthetic", "summary"})


class _PromptPayload(msgspec.Struct, gc=False):
    prompt_ids: Raw = Raw(b"null")


_decoder = msgspec.json.Decoder(_PromptPayload | None)


def find_regenerations(
    calls: Sequence[ModelCall], refused: Iterable[int], *, attempt: bool
) -> dict[int, Regeneration]:
    """By the numbers of the calls in tries that were taken back. `refused` are calls that the user
    said no to; `attempt` says that the session is one at a task."""
    taken_back: dict[int, Regeneration] = {}
    refused = frozenset(refused)
    turn = _TurnCalls()
    for call in calls:
        if call.flags & _NOT_ASKED:
            continue
        if turn.calls and (turn.calls[-1].turn, turn.calls[-1].context) != (
            call.turn,
            call.context,
        ):
            turn = _TurnCalls()
        first = turn.asked_before(call, refused, attempt=attempt)
        turn.calls.append(call)
        if first is None:
            continue
        tries = {first, *(own.chosen for own in taken_back.values())}
        start = max(number for number in tries if first <= number < call.number)
        for number in range(first, call.number):
            known = taken_back.get(number)
            rejected = start if known is None else known.rejected
            taken_back[number] = Regeneration(rejected, call.number)
    return taken_back


class _TurnCalls:
    """The calls of a turn so far. Their prompts are looked at when one may have come again."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self._prompts: list[bytes | None] = []
        #: The first call with each prompt.
        self._first: dict[bytes, int] = {}

    def asked_before(
        self, call: ModelCall, refused: frozenset[int], *, attempt: bool
    ) -> int | None:
        """The first call that was given the prompt of this one, by number."""
        if (named := call.payload.regenerates) is not None:
            numbers = (other.number for other in self.calls if other.payload.call_id == named)
            return next(numbers, None)
        if attempt or not self.calls or call.after != "assistant":
            return None
        for other in self.calls[len(self._prompts) :]:
            prompt = _prompt(other)
            self._prompts.append(prompt)
            if prompt is not None:
                self._first.setdefault(prompt, other.number)
        prompt, last = _prompt(call), self.calls[-1]
        if prompt is not None and self._prompts[-1] is not None:
            return self._first.get(prompt)
        return last.number if last.number in refused and not last.payload.tool_calls else None


def _prompt(call: ModelCall) -> bytes | None:
    """A digest of the engine's ids as they were written; None, where it gave none."""
    try:
        payload = _decoder.decode(call.payload.tokens)
    except (msgspec.MsgspecError, RecursionError):
        return None
    prompt = bytes(payload.prompt_ids) if payload else b"null"
    return None if prompt in (b"null", b"[]") else hashlib.sha256(prompt).digest()


def marked(context: ChatContext, taken_back: dict[int, Regeneration]) -> ChatContext:
    """The context, whose messages say of which try they are that was taken back. The results of
    tools are of the try that called them."""
    if not taken_back:
        return context
    messages: list[ChatMessage] = []
    current: Regeneration | None = None
    for message in context.messages:
        if message.role != "tool":
            current = None if message.call is None else taken_back.get(message.call)
        messages.append(message if current is None else replace(message, regeneration=current))
    return replace(context, messages=tuple(messages))
