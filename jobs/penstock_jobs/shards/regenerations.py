"""Regenerations: answers that somebody asked for again, and what took their place.

A try is all that the model said and tools answered from one call on. A later call of the same turn
takes its place where its producer says so (`regenerates`), where an engine was given the very same
prompt again, or where the user refused an answer and the model gave another without being told
anything new. The model never saw the try that was taken back when it wrote the other. Sessions that
are attempts at a task sample from one prompt on purpose: there only what the producer says counts.
"""

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
    for call in calls:
        if call.flags & _NOT_ASKED:
            continue
        first = _asked_before(call, calls, refused, attempt=attempt)
        if first is None:
            continue
        tries = {first, *(own.chosen for own in taken_back.values())}
        start = max(number for number in tries if first <= number < call.number)
        for number in range(first, call.number):
            known = taken_back.get(number)
            rejected = start if known is None else known.rejected
            taken_back[number] = Regeneration(rejected, call.number)
    return taken_back


def _asked_before(
    call: ModelCall, calls: Sequence[ModelCall], refused: frozenset[int], *, attempt: bool
) -> int | None:
    """The first call that was given the prompt of this one, by number."""
    earlier = [
        other
        for other in calls[: call.number]
        if (other.turn, other.context) == (call.turn, call.context) and not other.flags & _NOT_ASKED
    ]
    if (named := call.payload.regenerates) is not None:
        return next((other.number for other in earlier if other.payload.call_id == named), None)
    if attempt or not earlier or call.after != "assistant":
        return None
    prompt, last = _prompt(call), earlier[-1]
    if prompt is not None and _prompt(last) is not None:
        return next((other.number for other in earlier if _prompt(other) == prompt), None)
    return last.number if last.number in refused and not last.payload.tool_calls else None


def _prompt(call: ModelCall) -> bytes | None:
    """As the engine's ids were written; None, where it gave none."""
    try:
        payload = _decoder.decode(call.payload.tokens)
    except (msgspec.MsgspecError, RecursionError):
        return None
    prompt = bytes(payload.prompt_ids) if payload else b"null"
    return None if prompt in (b"null", b"[]") else prompt


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
