"""A conversation as values: contexts, messages, model calls, how it ended, and its chain."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
