"""The events that conversations are read from, in order, and their decoded payloads.

A payload that cannot be read becomes a problem of its event. It never raises.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Raw, Struct, UnsetType

#: What a conversation is decoded by; of the others, edits and observations are large.
TYPES = (
    "session_start", "session_end", "user_message", "model_call", "tool_result", "compaction",
    "interrupt", "error",
)  # fmt: skip

#: What an event is made of, with the session that it is of.
COLUMNS = (
    "tenant", "session_id", "ts", "seq", "type", "event_id", "source", "source_key", "checkpoint",
    "payload", "key",
)  # fmt: skip

_WITHOUT_SEQ = 2**63


class Event(NamedTuple):
    """One row of the view `events`, or of a segment."""

    ts_us: int
    seq: int | None
    type: str
    event_id: str | None
    #: JSON. A view of the column's memory: payloads hold millions of token ids.
    payload: str | bytes | memoryview
    source: str | None = None
    source_key: str | None = None
    checkpoint: str | None = None
    #: The event's identity, which orders those of one moment, where the rows have it.
    key: bytes = b""

    @property
    def name(self) -> str:
        return event_name(self.event_id, self.source, self.source_key, self.ts_us, self.seq)


def event_name(
    event_id: str | None,
    source: str | None,
    source_key: str | None,
    ts_us: int,
    seq: int | None,
) -> str:
    """What an event is called within its session: by its id, or as its producer does; without
    either by when it was. Ids hold no NUL, so that none is taken for another."""
    if event_id is not None:
        return event_id
    if source_key is not None:
        return f"{source or ''}\0{source_key}"
    return f"\0{ts_us}\0{seq}"


def in_order(events: Iterable[Event]) -> list[Event]:
    """As the views order them, so that turns have the same numbers everywhere."""
    return sorted(events, key=_when)


def events_by_session(rows: pa.Table) -> dict[str, list[Event]]:
    """Of rows of segments of one tenant, or of the view `events`; sessions and their events in
    order."""
    rows = rows.filter(pc.is_in(rows["type"], pa.array(TYPES)))
    names = ("ts", "seq", "type", "event_id", "source", "source_key", "checkpoint")
    columns = {name: rows[name] for name in names}
    columns["ts"] = columns["ts"].cast(pa.int64())
    keys = rows["key"].to_pylist() if "key" in rows.column_names else [b""] * rows.num_rows
    found: dict[str, list[Event]] = {}
    for session, payload, key, *values in zip(
        rows["session_id"].to_pylist(),
        rows["payload"],
        keys,
        *(column.to_pylist() for column in columns.values()),
        strict=True,
    ):
        fields = dict(zip(names[1:], values[1:], strict=True))
        content = memoryview(payload.as_buffer())
        event = Event(ts_us=values[0], payload=content, key=key, **fields)
        found.setdefault(session, []).append(event)
    return {session: in_order(found[session]) for session in sorted(found)}


def _when(event: Event) -> tuple[int, int, bytes]:
    seq = _WITHOUT_SEQ if event.seq is None else event.seq
    return event.ts_us, seq, event.key or _content(event)


def _content(event: Event) -> bytes:
    payload = event.payload
    content = payload.encode() if isinstance(payload, str) else bytes(payload)
    return f"{event.type}\0{event.event_id or ''}\0".encode() + content


@dataclass(frozen=True, slots=True)
class EventProblem:
    """Something about an event that keeps it, or a part of it, out of training."""

    kind: str
    seq: int | None
    event_id: str | None
    #: The id of the model call, where it is about one.
    call_id: str | None = None
    #: What was said about it.
    detail: str | None = None

    @classmethod
    def of(cls, kind: str, event: Event) -> "EventProblem":
        return cls(kind, event.seq, event.event_id)


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    #: JSON text as it was sent, broken or not: never written anew.
    arguments: str


class _ToolCallPayload(Struct, gc=False):
    id: str = ""
    name: str = ""
    arguments: Raw | UnsetType = UNSET


class ModelCallPayload(Struct, gc=False):
    """The payload of a model call. Its tokens are decoded apart, one call at a time."""

    call_id: str | None = None
    model: str | None = None
    text: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCallPayload] | None = None
    finish_reason: str | None = None
    sampling: dict[str, Any] | None = None
    tokens: Raw | UnsetType = UNSET
    #: What producers may send beside what the contract names.
    system: str | None = None
    tools: Raw | UnsetType = UNSET
    is_copied_context: bool = False


class ToolResultPayload(Struct, gc=False):
    call_id: str | None = None
    tool: str | None = None
    output: Raw | UnsetType = UNSET


class UserMessagePayload(Struct, gc=False):
    text: str = ""
    synthetic: bool = False
    is_copied_context: bool = False


class SessionStartPayload(Struct, gc=False):
    parent_session: str | None = None
    link: str | None = None
    task_id: str | None = None
    group_id: str | None = None
    system: str | None = None
    tools: Raw | UnsetType = UNSET


class CompactionPayload(Struct, gc=False):
    summary_call_id: str | None = None
    summary: str | None = None


class InterruptPayload(Struct, gc=False):
    call_id: str | None = None


class SessionEndPayload(Struct, gc=False):
    reason: str | None = None


EventPayload = (
    ModelCallPayload
    | ToolResultPayload
    | UserMessagePayload
    | SessionStartPayload
    | CompactionPayload
    | InterruptPayload
    | SessionEndPayload
)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "session_start": msgspec.json.Decoder(SessionStartPayload),
    "session_end": msgspec.json.Decoder(SessionEndPayload),
    "user_message": msgspec.json.Decoder(UserMessagePayload),
    "model_call": msgspec.json.Decoder(ModelCallPayload),
    "tool_result": msgspec.json.Decoder(ToolResultPayload),
    "compaction": msgspec.json.Decoder(CompactionPayload),
    "interrupt": msgspec.json.Decoder(InterruptPayload),
    "error": msgspec.json.Decoder(InterruptPayload),
}


@dataclass(slots=True)
class DecodedEvents:
    """Events with what they say, in order; those that say nothing legible are problems."""

    events: list[tuple[Event, EventPayload]] = field(default_factory=list)
    problems: list[EventProblem] = field(default_factory=list)


def read_events(events: list[Event]) -> DecodedEvents:
    decoded = DecodedEvents()
    for event in events:
        decoder = _DECODERS.get(event.type)
        if decoder is None:
            continue
        try:
            decoded.events.append((event, decoder.decode(event.payload)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            decoded.problems.append(EventProblem.of("payload_unreadable", event))
    return decoded


def tool_calls_of(payload: ModelCallPayload) -> tuple[ToolCall, ...]:
    calls = payload.tool_calls or ()
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


def temperature_of(payload: ModelCallPayload) -> float | None:
    value = (payload.sampling or {}).get("temperature")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e6 else None


class ToolRequest(NamedTuple):
    """A call of a tool, at the place of its model call among the events."""

    at: int
    nth: int
    id: str
    tool: str


class ToolAnswer(NamedTuple):
    at: int
    #: None: the producer gives none, or an empty one.
    id: str | None
    tool: str | None


@dataclass(frozen=True, slots=True)
class ToolMatches:
    #: The place of the result by the place and index of its call.
    of: dict[tuple[int, int], int]
    #: Places of results that no call is known for.
    orphans: frozenset[int]
    #: Places of results of calls that have one already; the first counts.
    repeated: frozenset[int]


def match_results(asked: Sequence[ToolRequest], answers: Iterable[ToolAnswer]) -> ToolMatches:
    """A result answers the last open call of its id before it; without one the next after it,
    where a clock was off. One without an id answers the first open call of its tool in the model
    call before it."""
    by_id: defaultdict[str, list[ToolRequest]] = defaultdict(list)
    by_place: defaultdict[int, list[ToolRequest]] = defaultdict(list)
    for one in asked:
        by_id[one.id].append(one)
        by_place[one.at].append(one)
    places = sorted(by_place)
    of: dict[tuple[int, int], int] = {}
    orphans, repeated = set(), set()
    last = 0
    for answer in sorted(answers):
        while last < len(places) and places[last] < answer.at:
            last += 1
        if answer.id is None:
            before = by_place[places[last - 1]] if last else []
            known = [one for one in before if answer.tool in (None, one.tool)]
            chosen = next((one for one in known if (one.at, one.nth) not in of), None)
        else:
            known = by_id.get(answer.id, [])
            chosen = _nearest(known, answer.at, of)
        if chosen is not None:
            of[chosen.at, chosen.nth] = answer.at
        elif answer.id is not None and known:
            repeated.add(answer.at)
        else:
            orphans.add(answer.at)
    return ToolMatches(of, frozenset(orphans), frozenset(repeated))


def _nearest(
    known: list[ToolRequest], at: int, of: dict[tuple[int, int], int]
) -> ToolRequest | None:
    split = bisect_left(known, at, key=_place)
    for position in range(split - 1, -1, -1):
        if known[position][:2] not in of:
            return _first_of_its_place(known, position, of)
    return next((one for one in known[split:] if one[:2] not in of), None)


def _first_of_its_place(
    known: list[ToolRequest], position: int, of: dict[tuple[int, int], int]
) -> ToolRequest:
    """Of parallel calls with one id, the first that is open."""
    found = known[position]
    while position and known[position - 1].at == found.at:
        position -= 1
        if known[position][:2] not in of:
            found = known[position]
    return found


def _place(one: ToolRequest) -> int:
    return one.at
