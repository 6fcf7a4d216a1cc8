"""A conversation as values: contexts, messages, model calls, its end, and regenerated tries.

A try is what the model said and tools answered, from one call on. A later call of the turn replaces
it in three cases: the call says so (`regenerates`), the engine got exactly the same prompt, or the
user refused the answer and the model gave another without new input. Attempts at a task sample one
prompt on purpose, so only the first case counts there.
"""

import hashlib
import re
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
    "copied",  # repeated from the parent session, or from earlier in this one
    "summary",  # a compaction's summary of the previous context: as written, and as shown
    "synthetic",  # written by a harness, or in place of a missing result
    "orphan",  # a result without a known call
    "late",  # a result after the model's next answer
    "interrupted",
]


class Regeneration(NamedTuple):
    """A replaced try and its replacement, by the numbers of their first calls."""

    rejected: int
    chosen: int


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    content: str
    #: The number in the view `turns`.
    turn: int
    #: Identity of its event, which may have neither.
    seq: int | None = None
    event_id: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    #: The number of the model call that said it.
    call: int | None = None
    #: The replaced try that it belongs to.
    regeneration: Regeneration | None = None
    flags: frozenset[Flag] = frozenset()

    @property
    def written(self) -> bool:
        """Whether the model wrote it in this session for the first time."""
        return self.role == "assistant" and not self.flags & {"copied", "synthetic"}


@dataclass(frozen=True, slots=True)
class ModelCall:
    event: Event
    payload: ModelCallPayload
    number: int
    turn: int
    #: The number of the context; for a summary, the summarized one.
    context: int
    #: Role and event of the answered message.
    after: Role
    after_seq: int | None
    flags: frozenset[Flag]


#: The context of the model between two compactions.
ChatContext = tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    session_id: str
    contexts: tuple[ChatContext, ...]
    calls: tuple[ModelCall, ...]
    tools: str | None
    start: SessionStartPayload
    end_reason: str | None
    #: An interrupt or error after all messages, before any end.
    ending: Ending | None
    first_us: int
    last_us: int
    problems: tuple[EventProblem, ...]
    #: From then on token ids may decode to masked text.
    redacted_from_us: int | None = None

    @property
    def messages(self) -> list[ChatMessage]:
        return [message for context in self.contexts for message in context]


class SequenceEnd(NamedTuple):
    status: Status
    stop_reason: str | None


_INTERRUPTED = SequenceEnd("aborted", "interrupted")
_ERROR = SequenceEnd("failed", "error")
_TOO_LONG = SequenceEnd("truncated", "max_tokens")
_OVERFLOW = SequenceEnd("truncated", "context_overflow")
#: Ends by the engine's finish reason; all others are normal.
_UNUSUAL_FINISHES = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), _TOO_LONG),
    **dict.fromkeys(("model_length", "model_context_window_exceeded"), _OVERFLOW),
    **dict.fromkeys(("abort", "aborted", "cancelled"), SequenceEnd("aborted", "aborted")),
    "content_filter": SequenceEnd("failed", "content_filter"),
    "error": _ERROR,
}
#: Ends by the reason of the `session_end`.
_SESSION_ENDS = {
    "completed": SequenceEnd("completed", "completed"),
    "user_stop": SequenceEnd("aborted", "user_stop"),
    "timeout": SequenceEnd("truncated", "rollout_timeout"),
    "crash": SequenceEnd("failed", "crash"),
}


def sequence_end(conversation: Conversation, last_call: int) -> SequenceEnd:
    """Return how a sequence ended: by the engine's finish reason of its last call, then by events.

    The session's end applies to its last call."""
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
    """Return how an uninterrupted session ended."""
    unusual = _UNUSUAL_FINISHES.get((finish_reason or "").lower())
    return unusual or _SESSION_ENDS.get(end_reason or "", SequenceEnd("completed", None))


def is_cut_short(conversation: Conversation, call: int) -> bool:
    own = conversation.calls[call]
    finish = (own.payload.finish_reason or "").lower()
    return finish in _UNUSUAL_FINISHES or "interrupted" in own.flags


class ChainPlace(NamedTuple):
    conversation: Conversation
    chain_pos: int
    #: The session that it continues, if in the chain.
    parent: str | None


def order_chain(conversations: Iterable[Conversation]) -> list[ChainPlace]:
    """Order sessions by start, parents first. In a cycle the earliest comes first."""
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


# Messages in OpenAI's format


class CalledFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: str
    #: JSON as the model wrote it, valid or not.
    arguments: str


class OpenAiCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    id: str
    type: str
    function: CalledFunction


class OpenAiMessage(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A message in OpenAI's format. `reasoning_content` holds the model's thinking."""

    role: Role
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[OpenAiCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    #: 0 for an untrained answer, as in fine-tuning files.
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


# Regenerated tries


_NOT_ASKED: frozenset[Flag] = frozenset({"copied", "synthetic", "summary"})


class _PromptPayload(msgspec.Struct, gc=False):
    prompt_ids: Raw = Raw(b"null")


_decoder = msgspec.json.Decoder(_PromptPayload | None)
_CHOICE = re.compile(r"(.+):\d+")


def find_regenerations(
    calls: Sequence[ModelCall], refused: Iterable[int], *, attempt: bool
) -> dict[int, Regeneration]:
    """Find calls in replaced tries, by number.

    `refused` are calls that the user refused; `attempt`: the session is an attempt at a task."""
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


def answer_of_choice(call: ModelCall) -> str | None:
    """Name the answer that a call may be a choice from: the proxy numbers choices."""
    match = _CHOICE.fullmatch(call.payload.call_id or "")
    return match[1] if match else None


class _TurnCalls:
    """The calls of a turn so far. Their prompts are decoded only if one may recur."""

    def __init__(self, turn: int, context: int) -> None:
        self.turn, self.context = turn, context
        self.calls: list[ModelCall] = []
        self._prompts: list[bytes | None] = []
        #: The first call with each prompt.
        self._first: dict[bytes, int] = {}

    def asked_before(
        self, call: ModelCall, refused: frozenset[int], *, attempt: bool
    ) -> int | None:
        """Find the first call with the same prompt, by number."""
        if (named := call.payload.regenerates) is not None:
            numbers = (other.number for other in self.calls if other.payload.call_id == named)
            return next(numbers, None)
        if attempt or not self.calls or call.after != "assistant":
            return None
        if (answer := answer_of_choice(call)) and answer == answer_of_choice(self.calls[-1]):
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
    """Digest the engine's ids as written; None without ids."""
    try:
        payload = _decoder.decode(call.payload.tokens)
    except (msgspec.MsgspecError, RecursionError):
        return None
    prompt = bytes(payload.prompt_ids) if payload else b"null"
    return None if prompt in (b"null", b"[]") else hashlib.sha256(prompt).digest()


def marked(context: ChatContext, taken_back: dict[int, Regeneration]) -> ChatContext:
    """Mark messages with the replaced try that they belong to."""
    if not taken_back:
        return context
    messages: list[ChatMessage] = []
    current: Regeneration | None = None
    for message in context:
        if message.role != "tool":
            current = None if message.call is None else taken_back.get(message.call)
        messages.append(message if current is None else replace(message, regeneration=current))
    return tuple(messages)
