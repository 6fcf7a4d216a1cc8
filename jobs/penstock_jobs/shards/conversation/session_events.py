"""Events of conversations in order, and their decoded payloads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct

from penstock.events.redaction.placeholders import PLACEHOLDER

COLUMNS = (
    "tenant", "session_id", "ts", "seq", "type", "event_id", "source", "source_key", "checkpoint",
    "payload", "key",
)  # fmt: skip
_WITHOUT_SEQ = 2**63
_NULL = Raw(b"null")


class Event(NamedTuple):
    ts_us: int
    seq: int | None
    type: str
    event_id: str | None
    #: JSON, as a view of the column's memory: payloads hold millions of token ids.
    payload: str | bytes | memoryview
    source: str | None = None
    source_key: str | None = None
    checkpoint: str | None = None
    #: The event's identity, if known. It orders simultaneous events.
    key: bytes = b""
    redacted: bool = False


def event_name(
    event_id: str | None, source: str | None, source_key: str | None, ts_us: int, seq: int | None
) -> str:
    """Name an event within its session: by id, producer's key, or time.

    Ids hold no NUL, so names of different kinds never collide."""
    if event_id is not None:
        return event_id
    if source_key is not None:
        return f"{source or ''}\0{source_key}"
    return f"\0{ts_us}\0{seq}"


def find_redacted(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of events with redacted text."""
    return pc.match_substring_regex(rows["payload"].cast(pa.large_utf8()), PLACEHOLDER.pattern)


def events_by_session(
    rows: pa.Table, redacted: pa.ChunkedArray | None = None
) -> dict[str, list[Event]]:
    """Group rows of one tenant's segments, or of the view `events`, by session and in order.

    `redacted` is the result of `find_redacted`, if known."""
    redacted = find_redacted(rows) if redacted is None else redacted
    rows = rows.append_column("redacted", redacted)
    said = pc.is_in(rows["type"], pa.array(DECODERS, pa.string()))
    rows = rows.filter(pc.or_(said, redacted))
    has_keys = "key" in rows.column_names
    columns = [
        rows["ts"].cast(pa.int64()).to_pylist(),
        *(rows[name].to_pylist() for name in ("seq", "type", "event_id")),
        payload_views(rows["payload"]),
        *(rows[name].to_pylist() for name in ("source", "source_key", "checkpoint")),
        rows["key"].to_pylist() if has_keys else [b""] * rows.num_rows,
        rows["redacted"].to_pylist(),
    ]
    events: dict[str, list[Event]] = {}
    for session, event in zip(rows["session_id"].to_pylist(), map(Event, *columns), strict=True):
        events.setdefault(session, []).append(event)
    return {session: in_order(events[session]) for session in sorted(events)}


def payload_views(payloads: pa.ChunkedArray) -> list[memoryview]:
    """Return views of the bytes of each payload, without copies."""
    views: list[memoryview] = []
    for chunk in payloads.chunks:
        texts = chunk.cast(pa.large_utf8())
        _, offsets, content = texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        whole = memoryview(content or b"")
        views += [whole[start:end] for start, end in pairwise(ends.tolist())]
    return views


def in_order(events: Iterable[Event]) -> list[Event]:
    """Sort events as the views do, so that turns have the same numbers everywhere."""
    return sorted(events, key=_order_key)


def _order_key(event: Event) -> tuple[int, int, bytes]:
    seq = _WITHOUT_SEQ if event.seq is None else event.seq
    if event.key:
        return event.ts_us, seq, event.key
    payload = event.payload
    content = payload.encode() if isinstance(payload, str) else bytes(payload)
    return event.ts_us, seq, f"{event.type}\0{event.event_id or ''}\0".encode() + content


class EventProblem(msgspec.Struct, frozen=True):
    """A problem that keeps an event, or a part of it, out of training."""

    kind: str
    seq: int | None
    event_id: str | None
    call_id: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    #: JSON text as sent, valid or not, never re-encoded.
    arguments: str


class _ToolCallPayload(Struct, gc=False):
    id: str = ""
    name: str = ""
    arguments: Raw = _NULL


class EventPayload(Struct, gc=False):
    """The part of an event's payload that a conversation needs."""


class ModelCallPayload(EventPayload):
    call_id: str | None = None
    model: str | None = None
    text: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCallPayload] | None = None
    finish_reason: str | None = None
    sampling: dict[str, Any] | None = None
    #: Decoded separately, one call at a time.
    tokens: Raw = _NULL
    #: Optional fields outside the contract.
    system: str | None = None
    tools: Raw = _NULL
    is_copied_context: bool = False
    #: The id of the call that this one replaces.
    regenerates: str | None = None


class ToolResultPayload(EventPayload):
    call_id: str | None = None
    tool: str | None = None
    output: Raw = _NULL


class UserMessagePayload(EventPayload):
    text: str = ""
    synthetic: bool = False
    is_copied_context: bool = False


class SessionStartPayload(EventPayload):
    parent_session: str | None = None
    link: str | None = None
    task_id: str | None = None
    group_id: str | None = None
    license: Any = None
    system: str | None = None
    tools: Raw = _NULL


class CompactionPayload(EventPayload):
    summary_call_id: str | None = None
    summary: str | None = None


class InterruptPayload(EventPayload):
    call_id: str | None = None


class SessionEndPayload(EventPayload):
    reason: str | None = None


class FeedbackPayload(EventPayload):
    kind: str | None = None
    target: str | None = None
    value: Any = None

    @property
    def refuses(self) -> bool:
        """Whether it is negative, as in the view `feedback`."""
        if self.kind != "thumbs":
            return self.kind in ("reject", "undo")
        if isinstance(self.value, str):
            return self.value.lower() in ("down", "false", "no")
        return isinstance(self.value, bool | int | float) and self.value <= 0


#: Payload types of conversations. Others, such as edits and observations, are large.
_PAYLOADS: dict[str, type[Any]] = {
    "session_start": SessionStartPayload,
    "session_end": SessionEndPayload,
    "user_message": UserMessagePayload,
    "model_call": ModelCallPayload,
    "tool_result": ToolResultPayload,
    "compaction": CompactionPayload,
    "interrupt": InterruptPayload,
    "error": InterruptPayload,
    "feedback": FeedbackPayload,
}
DECODERS = {kind: msgspec.json.Decoder(payload) for kind, payload in _PAYLOADS.items()}
DecodedEvents = list[tuple[Event, EventPayload]]


def decode_events(events: Iterable[Event]) -> tuple[DecodedEvents, list[EventProblem]]:
    """Decode events in order. Unreadable ones become problems."""
    decoded: DecodedEvents = []
    problems: list[EventProblem] = []
    for event in in_order(events):
        decoder = DECODERS.get(event.type)
        if decoder is None:
            continue
        try:
            decoded.append((event, decoder.decode(event.payload)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            problems.append(EventProblem("payload_unreadable", event.seq, event.event_id))
    return decoded, problems


def tool_calls_of(payload: ModelCallPayload) -> tuple[ToolCall, ...]:
    calls = payload.tool_calls or ()
    return tuple(ToolCall(call.id, call.name, text_of(call.arguments, "{}")) for call in calls)


def text_of(value: Raw, missing: str = "") -> str:
    """Return a JSON string's content; any other value as the JSON that was sent."""
    content = bytes(value)
    if content == b"null":
        return missing
    if content.startswith(b'"'):
        return msgspec.json.decode(content, type=str)
    return content.decode()


def tools_of(value: Raw) -> str | None:
    """Return offered tools as JSON, if they are a list of objects."""
    try:
        tools = msgspec.json.decode(value, type=list[dict[str, Any]] | None)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return bytes(value).decode() if tools else None


def temperature_of(payload: ModelCallPayload) -> float | None:
    value = (payload.sampling or {}).get("temperature")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e6 else None


def texts_within(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_within(part)
