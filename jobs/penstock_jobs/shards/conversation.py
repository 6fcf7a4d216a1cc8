"""A conversation as values: contexts, messages, model calls, how it ended, its chain, and which
tries were taken back.

A try is all that the model said and tools answered from one call on. A later call of the same turn
takes its place where its producer says so (`regenerates`), where an engine was given the very same
prompt again, or where the user refused an answer and the model gave another without being told
anything new. The model never saw the try that was taken back when it wrote the other. Sessions that
are attempts at a task sample from one prompt on purpose: there only what the producer says counts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from penstock.shards.schema import Status
from penstock_jobs.shards.session_events import (
    Event,
    EventProblem,
    ModelCallPayload,
    SessionStartPayload,
    ToolCall,
)

Ending = Literal["interrupt", "error"]
Role = Literal["system", "user", "assistant", "tool"]
Flag = Literal[
    "copied",  # told before: by the session that this one goes on from, or in this one
    "summary",  # what a compaction left of the context before: as written, and as shown again
    "synthetic",  # nobody wrote it: a harness did, or it stands for a result that never came
    "orphan",  # a result that no call is known for
    "late",  # a result that came after the next answer of the model
    "interrupted",
]


class Regeneration(NamedTuple):
    """A try that was taken back, by the number of its first call, and that of the answer which
    took its place."""

    rejected: int
    chosen: int


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    content: str
    #: As the view `turns` numbers them.
    turn: int
    #: Of the event that it came from; an event may have neither.
    seq: int | None = None
    event_id: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    #: Of what the model said: which of the conversation's calls it is.
    call: int | None = None
    #: Of what the model said in a try that was taken back, and of what tools answered it.
    regeneration: Regeneration | None = None
    flags: frozenset[Flag] = frozenset()

    @property
    def written(self) -> bool:
        """By the model, here and for the first time."""
        return self.role == "assistant" and not self.flags & {"copied", "synthetic"}


@dataclass(frozen=True, slots=True)
class ModelCall:
    event: Event
    payload: ModelCallPayload
    #: Among the session's calls, in order.
    number: int
    turn: int
    #: The context that it belongs to; that which it summed up, where it wrote a summary.
    context: int
    #: What it answered: the role and event of the message before it.
    after: Role
    after_seq: int | None
    flags: frozenset[Flag]


@dataclass(frozen=True, slots=True)
class ChatContext:
    """What the model saw between two compactions."""

    messages: tuple[ChatMessage, ...]
    #: False: it began with a summary that is not known.
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    session_id: str
    contexts: tuple[ChatContext, ...]
    calls: tuple[ModelCall, ...]
    #: JSON as it was sent.
    tools: str | None
    #: The latest `session_start`.
    start: SessionStartPayload
    #: Of the `session_end`.
    end_reason: str | None
    #: What came after all that was said, if it was not the end.
    ending: Ending | None
    first_us: int
    last_us: int
    problems: tuple[EventProblem, ...]
    #: From then on token ids decode to what redaction masked.
    redacted_from_us: int | None = None

    @property
    def messages(self) -> list[ChatMessage]:
        return [message for context in self.contexts for message in context.messages]


class SequenceEnd(NamedTuple):
    status: Status
    stop_reason: str | None


_INTERRUPTED = SequenceEnd("aborted", "interrupted")
_ERROR = SequenceEnd("failed", "error")
#: The engine's finish reasons, by what they mean; any other is usual.
_FINISHES: dict[SequenceEnd, tuple[str, ...]] = {
    SequenceEnd("truncated", "max_tokens"): ("length", "max_tokens", "max_output_tokens"),
    SequenceEnd("truncated", "context_overflow"): ("model_length", "model_context_window_exceeded"),
    SequenceEnd("aborted", "aborted"): ("abort", "aborted", "cancelled"),
    SequenceEnd("failed", "content_filter"): ("content_filter",),
    _ERROR: ("error",),
}
_UNUSUAL_FINISHES = {reason: end for end, reasons in _FINISHES.items() for reason in reasons}
#: By the reason of the `session_end`.
_SESSION_ENDS = {
    "completed": SequenceEnd("completed", "completed"),
    "user_stop": SequenceEnd("aborted", "user_stop"),
    "timeout": SequenceEnd("truncated", "rollout_timeout"),
    "crash": SequenceEnd("failed", "crash"),
}


def sequence_end(conversation: Conversation, last_call: int) -> SequenceEnd:
    """How a sequence ended whose last call this is. What the engine says of its end comes first,
    then what happened to it; how the session ended is how its last call did."""
    call = conversation.calls[last_call]
    finish = (call.payload.finish_reason or "").lower()
    if finish in _UNUSUAL_FINISHES:
        return _UNUSUAL_FINISHES[finish]
    if "interrupted" in call.flags:
        return _INTERRUPTED
    if last_call != len(conversation.calls) - 1:
        return SequenceEnd("completed", "continued")
    if conversation.ending is not None:
        return _INTERRUPTED if conversation.ending == "interrupt" else _ERROR
    return plain_end(None, conversation.end_reason)


def plain_end(finish_reason: str | None, end_reason: str | None) -> SequenceEnd:
    """Of a session's last call to which nothing happened."""
    unusual = _UNUSUAL_FINISHES.get((finish_reason or "").lower())
    return unusual or _SESSION_ENDS.get(end_reason or "", SequenceEnd("completed", None))


def is_cut_short(conversation: Conversation, call: int) -> bool:
    """Whether the answer was ended before the model ended it."""
    own = conversation.calls[call]
    finish = (own.payload.finish_reason or "").lower()
    return finish in _UNUSUAL_FINISHES or "interrupted" in own.flags


class ChainPlace(NamedTuple):
    conversation: Conversation
    chain_pos: int
    #: The session that it goes on from, where the chain has it.
    parent: str | None


def order_chain(conversations: Iterable[Conversation]) -> list[ChainPlace]:
    """As they began, but none before the one that it goes on from. Of a ring, which nobody should
    send, the first begins."""
    waiting = sorted(conversations, key=lambda each: (each.first_us, each.session_id))
    placed: dict[str, ChainPlace] = {}
    while waiting:
        names = {each.session_id for each in waiting}
        ready = (a for a in waiting if a.start.parent_session not in names - {a.session_id})
        chosen = next(ready, waiting[0])
        parent = chosen.start.parent_session
        place = ChainPlace(chosen, len(placed), parent if parent in placed else None)
        placed[chosen.session_id] = place
        waiting.remove(chosen)
    return list(placed.values())


# Messages in OpenAI's form


class CalledFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: str
    #: As the model wrote them, broken or not.
    arguments: str


class OpenAiCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    id: str
    type: str
    function: CalledFunction


class OpenAiMessage(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """What the model thought is `reasoning_content`, as inference servers call it."""

    role: Role
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[OpenAiCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    #: 0 for what the model said and is not trained, as fine-tuning files have it.
    weight: int | None = None

    @property
    def trained(self) -> bool:
        return self.role == "assistant" and self.weight != 0


def openai_message(message: ChatMessage, *, trained: bool = True) -> OpenAiMessage:
    is_result = message.role == "tool"
    return OpenAiMessage(
        message.role,
        message.content,
        message.reasoning,
        [openai_call(call.id, call.name, call.arguments) for call in message.tool_calls] or None,
        message.tool_call_id if is_result else None,
        message.name if is_result else None,
        0 if message.role == "assistant" and not trained else None,
    )


def openai_call(id_: str, name: str, arguments: str) -> OpenAiCall:
    return OpenAiCall(id_, "function", CalledFunction(name, arguments))


# Tries that were taken back


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
