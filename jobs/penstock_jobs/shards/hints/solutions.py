"""Solutions in hints: lines of later answers, word for word."""

from collections.abc import Iterator
from dataclasses import replace

from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.conversation.session_events import tool_calls_of
from penstock_jobs.shards.hints.hint import Hint, ToldChain
from penstock_jobs.shards.rows.preferences import texts_of

#: Shorter lines are in many answers by chance.
_LINE_CHARS_MIN = 16


def holds_answer(hint: Hint, chain: ToldChain) -> Hint:
    """Mark a hint that holds a line of a later answer, unless it was known before the call."""
    if not hint.answer_free:
        return hint
    own = chain.conversations[hint.call.session_id]
    moment = own.calls[hint.call.number].event.ts_us, hint.call
    lines = {
        line
        for place, facts in chain.calls
        if (facts.ts_us, place) > moment
        for text in _written(chain.conversations[place.session_id], place.number)
        for line in map(str.strip, text.splitlines())
        if len(line) >= _LINE_CHARS_MIN and line in hint.text
    }
    if not lines:
        return hint
    known = "\n".join(_told_before(own, hint.call.number))
    return replace(hint, answer_free=all(line in known for line in lines))


def _written(conversation: Conversation, call: int) -> Iterator[str]:
    """Yield what a call wrote: its text, and the texts in its tool calls."""
    payload = conversation.calls[call].payload
    yield payload.text or ""
    for tool in tool_calls_of(payload):
        yield from texts_of(tool.arguments)


def _told_before(conversation: Conversation, call: int) -> Iterator[str]:
    """Yield what the model had read, and what it had written with this call."""
    for message in conversation.messages:
        if message.call is None:
            yield message.content
        elif message.call > call:
            break
        else:
            yield from _written(conversation, message.call)
