"""A conversation as values: contexts, messages, model calls, how it ended, its chain, and which
tries were taken back.

A try is all that the model said and tools answered from one call on. A later call of the turn takes
its place where it says so (`regenerates`), where an engine was given the very same prompt again, or
where the user refused the answer and the model gave another without being told anything new.
Sessions that are attempts at a task sample from one prompt on purpose: there only the first counts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from penstock.shards.schema import Status
from penstock_jobs.shards.conversation.session_events import (
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
    """A try that was taken back and what took its place, by the numbers of their first calls."""

    rejected: int
    chosen: int


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    content: str
    #: As the view `turns` numbers them.
    turn: int
    #: Of its event, which may have neither.
    seq: int | None = None
    event_id: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    #: Which of the conversation's calls said it.
    call: int | None = None
    #: The try that was taken back of which it is.
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
    number: int
    turn: int
    #: Of a summary: the context that it sums up.
    context: int
    #: The role and event of the message that it answered.
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
    tools: str | None
    start: SessionStartPayload
    end_reason: str | None
    #: What came after all that was said, before any end.
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
_TOO_LONG = SequenceEnd("truncated", "max_tokens")
_OVERFLOW = SequenceEnd("truncated", "context_overflow")
#: By the engine's finish reason; any other is usual.
_UNUSUAL_FINISHES = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), _TOO_LONG),
    **dict.fromkeys(("model_length", "model_context_window_exceeded"), _OVERFLOW),
    **dict.fromkeys(("abort", "aborted", "cancelled"), SequenceEnd("aborted", "aborted")),
    "content_filter": SequenceEnd("failed", "content_filter"),
    "error": _ERROR,
}
#: By the reason of the `session_end`.
_SESSION_ENDS = {
    "completed": SequenceEnd("completed", "completed"),
    "user_stop": SequenceEnd("aborted", "user_stop"),
    "timeout": SequenceEnd("truncated", "rollout_timeout"),
    "crash": SequenceEnd("failed", "crash"),
}


def sequence_end(conversation: Conversation, last_call: int) -> SequenceEnd:
    """How a sequence ended: what the engine says of its last call comes first, then what happened
    to it. The session's end is that of its last call."""
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
    """How a session's last call ended, to which nothing happened."""
    unusual = _UNUSUAL_FINISHES.get((finish_reason or "").lower())
    return unusual or _SESSION_ENDS.get(end_reason or "", SequenceEnd("completed", None))


def is_cut_short(conversation: Conversation, call: int) -> bool:
    own = conversation.calls[call]
    finish = (own.payload.finish_reason or "").lower()
    return finish in _UNUSUAL_FINISHES or "interrupted" in own.flags


class ChainPlace(NamedTuple):
    conversation: Conversation
    chain_pos: int
    #: The session that it goes on from, where the chain has it.
    parent: str | None


def order_chain(conversations: Iterable[Conversation]) -> list[ChainPlace]:
    """Order sessions as they began, none before the one that it goes on from. Of a ring the first
    begins."""
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
    """Find the calls in tries that were taken back, by number. `refused` are calls that the user
    said no to; `attempt` says that the session is one at a task."""
    taken_back: dict[int, Regeneration] = {}
    refused = frozenset(refused)
    turn = _TurnCalls(0, 0)
    for call in calls:
        if call.flags & _NOT_ASKED:
            continue
        if (turn.turn, turn.context) != (call.turn, call.context):
            turn = _TurnCalls(call.turn, call.context)
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

    def __init__(self, turn: int, context: int) -> None:
        self.turn, self.context = turn, context
        self.calls: list[ModelCall] = []
        self._prompts: list[bytes | None] = []
        #: The first call with each prompt.
        self._first: dict[bytes, int] = {}

    def asked_before(
        self, call: ModelCall, refused: frozenset[int], *, attempt: bool
    ) -> int | None:
        """Find the first call that was given the prompt of this one, by number."""
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
    """Digest the engine's ids as they were written; None where it gave none."""
    try:
        payload = _decoder.decode(call.payload.tokens)
    except (msgspec.MsgspecError, RecursionError):
        return None
    prompt = bytes(payload.prompt_ids) if payload else b"null"
    return None if prompt in (b"null", b"[]") else hashlib.sha256(prompt).digest()


def marked(context: ChatContext, taken_back: dict[int, Regeneration]) -> ChatContext:
    """Have messages say of which try they are that was taken back."""
    if not taken_back:
        return context
    messages: list[ChatMessage] = []
    current: Regeneration | None = None
    for message in context.messages:
        if message.role != "tool":
            current = None if message.call is None else taken_back.get(message.call)
        messages.append(message if current is None else replace(message, regeneration=current))
    return replace(context, messages=tuple(messages))
