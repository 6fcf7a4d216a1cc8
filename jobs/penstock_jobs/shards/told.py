"""What events tell of a conversation, decoded: what cannot be read is named, and never raises."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock_jobs.shards.messages import Problem, ToolCall
from penstock_jobs.shards.session_events import Event


class _SaidToolCall(Struct, gc=False):
    id: str = ""
    name: str = ""
    arguments: Raw | UnsetType = UNSET


class SaidCall(Struct, gc=False):
    """The payload of a model call. Its tokens are decoded apart, one call at a time."""

    call_id: str | None = None
    model: str | None = None
    text: str | None = None
    thinking: str | None = None
    tool_calls: list[_SaidToolCall] | None = None
    finish_reason: str | None = None
    sampling: dict[str, Any] | None = None
    tokens: Raw | UnsetType = UNSET
    #: What producers may send beside what the contract names.
    system: str | None = None
    tools: Raw | UnsetType = UNSET
    is_copied_context: bool = False


class SaidResult(Struct, gc=False):
    call_id: str | None = None
    tool: str | None = None
    output: Raw | UnsetType = UNSET


class SaidMessage(Struct, gc=False):
    text: str = ""
    synthetic: bool = False
    is_copied_context: bool = False


class SaidStart(Struct, gc=False):
    parent_session: str | None = None
    link: str | None = None
    task_id: str | None = None
    group_id: str | None = None
    system: str | None = None
    tools: Raw | UnsetType = UNSET


class SaidCompaction(Struct, gc=False):
    summary_call_id: str | None = None
    summary: str | None = None


class SaidInterrupt(Struct, gc=False):
    call_id: str | None = None


class SaidEnd(Struct, gc=False):
    reason: str | None = None


Said = (
    SaidCall | SaidResult | SaidMessage | SaidStart | SaidCompaction | SaidInterrupt | SaidEnd
)  # fmt: skip
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "session_start": msgspec.json.Decoder(SaidStart),
    "session_end": msgspec.json.Decoder(SaidEnd),
    "user_message": msgspec.json.Decoder(SaidMessage),
    "model_call": msgspec.json.Decoder(SaidCall),
    "tool_result": msgspec.json.Decoder(SaidResult),
    "compaction": msgspec.json.Decoder(SaidCompaction),
    "interrupt": msgspec.json.Decoder(SaidInterrupt),
    "error": msgspec.json.Decoder(SaidInterrupt),
}


@dataclass(slots=True)
class Told:
    """Events with what they say, in order; those that say nothing legible are problems."""

    events: list[tuple[Event, Said]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_events(events: list[Event]) -> Told:
    told = Told()
    for event in events:
        decoder = _DECODERS.get(event.type)
        if decoder is None:
            continue
        try:
            told.events.append((event, decoder.decode(event.payload)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            told.problems.append(Problem.of("payload_unreadable", event))
    return told


def tool_calls_of(said: SaidCall) -> tuple[ToolCall, ...]:
    calls = said.tool_calls or ()
    return tuple(ToolCall(one.id, one.name, text_of(one.arguments, "{}")) for one in calls)


def text_of(value: Raw | UnsetType, missing: str = "") -> str:
    """A JSON text is what it holds; any other value is the JSON that was sent."""
    if value is UNSET:
        return missing
    content = bytes(value)
    if content == b"null":
        return missing
    if content.startswith(b'"'):
        return msgspec.json.decode(content, type=str)
    return content.decode()


def tools_of(value: Raw | UnsetType) -> str | None:
    """The tools that the model was offered, as JSON, where they are a list of objects."""
    if value is UNSET:
        return None
    try:
        tools = msgspec.json.decode(value, type=list[dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    return bytes(value).decode() if tools else None


def temperature_of(said: SaidCall) -> float | None:
    value = (said.sampling or {}).get("temperature")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e6 else None
