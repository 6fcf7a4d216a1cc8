"""Conversion of readings of spans and records to events.

Each span and record is converted independently: its events are the same in any batch and order. So
a model call reports only what is new in its history, which follows the model's last message. Event
ids derive from the span's ids or from the content."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, field
from xxhash import xxh3_128_hexdigest

from penstock.events.event import ID_CHARS_MAX
from penstock.events.messages import Message, ToolOutput, as_text, present
from penstock.ingest.otlp.records import Attributes, Origin, structured

_SOURCE_CHARS_MAX = 128

_SESSION = (
    "penstock.session", "gen_ai.conversation.id", "session.id", "conversation.id",
    "cursor.conversation.id", "traceloop.association.properties.session_id",
    "langfuse.session.id", "langsmith.trace.session_id", "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "mlflow.trace.session", "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.session_id", "thread_id", "conversation_id", "session_id",
)  # fmt: skip
_USER = (
    "penstock.user", "user.id", "enduser.id", "traceloop.association.properties.user_id",
    "langfuse.user.id", "mlflow.trace.user", "langsmith.metadata.user_id",
    "ai.telemetry.metadata.userId", "user.account_uuid", "user.account_id",
)  # fmt: skip
_PROJECT = ("penstock.project",)
_CHECKPOINT = ("penstock.checkpoint",)
_CONSENTS = ("train", "no_train", "unknown")
#: Facts of `session_start`, by attribute.
_START = {
    "client": ("service.name",),
    "client_version": ("service.version", "app.version"),
    "repo": ("penstock.repo", "vcs.repository.url.full"),
    "branch": ("penstock.branch", "vcs.ref.head.name"),
    "commit": ("penstock.commit", "vcs.ref.head.revision"),
    "license": ("penstock.license",),
    "task_id": ("penstock.task_id",),
    "group_id": ("penstock.group_id",),
    "arm": ("penstock.arm",),
}


class Owner(Struct):
    session_id: str
    source: str
    user: str | None
    project: str | None
    checkpoint: str | None
    start: dict[str, Any]


def session_of(attributes: Attributes, origin: Origin) -> str | None:
    """The session that a record names itself."""
    return _fact(_SESSION, attributes, origin.resource)


def owner_of(attributes: Attributes, origin: Origin, session: str) -> Owner:
    client = _fact(_START["client"], origin.resource)
    start = {name: _fact(names, attributes, origin.resource) for name, names in _START.items()}
    consent = _fact(("penstock.consent",), attributes, origin.resource)
    start["consent"] = consent if consent in _CONSENTS else None
    return Owner(
        session,
        f"otlp:{client[:_SOURCE_CHARS_MAX]}" if client else "otlp",
        _fact(_USER, attributes, origin.resource),
        _fact(_PROJECT, attributes, origin.resource),
        _fact(_CHECKPOINT, attributes, origin.resource),
        present(start),
    )


def _fact(names: tuple[str, ...], *places: Attributes) -> str | None:
    for place in places:
        for name in names:
            value = place.get(name)
            if isinstance(value, str) and value.startswith('"'):
                value = structured(value)  # MLflow encodes each as JSON
            if value is None or value == "" or isinstance(value, bool | list | dict):
                continue
            return bounded_id(str(value))
    return None


def bounded_id(name: str) -> str:
    """An id that events may have: others' may be too long, or contain NUL."""
    name = name.replace("\0", "")
    if not name:
        return "?"
    return name if len(name) <= ID_CHARS_MAX else xxh3_128_hexdigest(name.encode())


class ModelCallReading(Struct):
    """A model call. `messages` is its input: of the history at least the model's last answer, with
    the number of omitted messages."""

    messages: list[Message] = field(default_factory=list)
    left_out: int = 0
    answers: list[Message] = field(default_factory=list)
    system: str | None = None
    tools: list[Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    error: str | None = None
    #: Another record has the answer; this one has the input.
    asks_only: bool = False


class ToolReading(Struct):
    name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    output: Any = None
    ok: bool | None = None
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


class StepReading(Struct):
    """Another step of an agent: its run, a chain, a search. The calls below it report its input and
    output."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


class EventReading(Struct):
    type: str
    payload: dict[str, Any]
    #: The id of the event in its session, if the record has one.
    key: str | None = None


Reading = ModelCallReading | ToolReading | StepReading | EventReading


class RecordReading(Struct):
    """The content of an agent's log record. None if it has none, or another record has it."""

    reading: Reading | None
    key: str | None = None
    name: str = ""
    #: Whether its use depends on the rest of the batch.
    waits: bool = False
    #: Content that its session evidently reports in full.
    full: str | None = None
    #: Redundant if its session reports this in full.
    lesser_than: str | None = None


Event = dict[str, Any]

#: A step of an agent that is neither a model call nor a tool call.
STEP_TYPE = "x_span"


class Moment(Struct):
    key: str
    began_us: int
    ended_us: int
    trace_id: str = ""
    #: The origin of the record, for its payloads.
    otel: dict[str, Any] = field(default_factory=dict)


def events_of(reading: Reading, owner: Owner, moment: Moment) -> Iterator[Event]:
    if isinstance(reading, ModelCallReading):
        yield from _of_call(reading, owner, moment)
    elif isinstance(reading, ToolReading):
        if reading.call_id:
            yield _of_tool(reading, owner, moment)
        else:
            # A run without the id of its call is not a result; the next model call has the result.
            told = {"tool": reading.name, "arguments": reading.arguments, "output": reading.output}
            step = StepReading("tool", present(told | reading.facts), reading.error)
            yield _of_step(step, owner, moment)
    elif isinstance(reading, StepReading):
        yield _of_step(reading, owner, moment)
    else:
        payload = present(reading.payload | {"otel": moment.otel})
        yield _event(owner, reading.type, moment.ended_us, reading.key or moment.key, payload)


def start_of(owner: Owner, ts_us: int, **more: Any) -> Event:
    """The known facts of the session. They are sent with each request, with the same id for the
    same facts."""
    payload = owner.start | more
    digest = xxh3_128_hexdigest(msgspec.json.encode(payload, order="deterministic"))
    return _event(owner, "session_start", ts_us, f"start:{digest}", payload)


def user_message(owner: Owner, text: str, ts_us: int, key: str, **more: Any) -> Event:
    return _event(owner, "user_message", ts_us, key, present({"text": text, **more}))


def _of_call(call: ModelCallReading, owner: Owner, moment: Moment) -> Iterator[Event]:
    last = max(
        (at for at, message in enumerate(call.messages) if message.role == "assistant"), default=-1
    )
    ts_us = moment.began_us
    for place, message in enumerate(call.messages[last + 1 :], last + 1):
        for output in message.outputs:
            yield _of_output(output, owner, moment, ts_us, place)
            ts_us = min(ts_us + 1, moment.ended_us)
        if message.role == "user" and message.text:
            key = _user_key(call, place, last, moment.trace_id)
            yield user_message(owner, message.text, ts_us, key)
            ts_us = min(ts_us + 1, moment.ended_us)
    if call.asks_only:
        setting = present({"system": call.system, "tools": call.tools})
        if setting and last < 0:
            yield start_of(owner, moment.began_us, **setting)
        return
    answer = call.answers[0] if call.answers else Message("assistant")
    if call.error is not None:
        facts = {"call_id": moment.key} | call.facts | {"otel": moment.otel}
        failure = {"message": call.error, "error_class": "provider_error", **facts}
        key = f"{moment.key}:error" if not answer.is_empty else moment.key
        yield _event(owner, "error", moment.ended_us, key, present(failure))
        if answer.is_empty:
            return
    yield _model_call(call, answer, last < 0, owner, moment)


def _user_key(call: ModelCallReading, place: int, last: int, trace_id: str) -> str:
    """The id of a user message: equal words at the same place after the same answer are one
    message, which a retry sends again. Without an earlier answer they may begin another
    conversation."""
    before: list[Any] = [trace_id]
    if last >= 0:
        answer = call.messages[last]
        before = [answer.text, [each["id"] for each in answer.calls]]
    identity = [call.left_out + place, *before, call.messages[place].text]
    return f"user:{xxh3_128_hexdigest(msgspec.json.encode(identity))}"


def _model_call(
    call: ModelCallReading, answer: Message, begins: bool, owner: Owner, moment: Moment
) -> Event:
    others = [message.text for message in call.answers[1:] if message.text]
    payload = {
        "call_id": moment.key,
        "text": answer.text,
        "thinking": answer.thinking,
        "tool_calls": [_named_call(each, moment, at) for at, each in enumerate(answer.calls)]
        or None,
        "finish_reason": answer.finish_reason,
        # A record has only one time.
        "latency_ms": (moment.ended_us - moment.began_us) / 1000 or None,
        # Later calls repeat it, so only the first reports it.
        "system": call.system if begins else None,
        "tools": call.tools if begins else None,
        **call.facts,
        "alternatives": others or None,
        "cut": call.cut or None,
        "otel": moment.otel,
    }
    checkpoint = owner.checkpoint or call.facts.get("model")
    return _event(
        owner, "model_call", moment.ended_us, moment.key, present(payload), checkpoint=checkpoint
    )


def _named_call(call: dict[str, Any], moment: Moment, at: int) -> dict[str, Any]:
    return {
        "id": call["id"] or f"{moment.key}:{at}",
        "name": call["name"] or "?",
        "arguments": structured(call["arguments"]),
    }


def _of_output(output: ToolOutput, owner: Owner, moment: Moment, ts_us: int, place: int) -> Event:
    """A tool's result as the model received it; the span of the tool's run, if any, is the same
    event."""
    key = f"tool:{output.call_id}" if output.call_id else f"{moment.key}:result:{place}"
    told = output.output
    payload = {
        "call_id": output.call_id,
        "tool": output.tool,
        "ok": output.ok,
        "output": None if told is None else as_text(told),
    }
    return _event(owner, "tool_result", ts_us, key, present(payload))


def _of_tool(tool: ToolReading, owner: Owner, moment: Moment) -> Event:
    key = moment.key if moment.key.startswith("tool:") else f"tool:{tool.call_id}"
    ok = tool.ok if tool.ok is not None else (False if tool.error is not None else None)
    payload = {
        "call_id": tool.call_id,
        "tool": tool.name,
        "ok": ok,
        "error_class": "unknown" if ok is False else None,
        "output": tool.output if tool.output is not None else tool.error,
        "duration_ms": (moment.ended_us - moment.began_us) / 1000,
        "arguments": tool.arguments,
        **tool.facts,
        "error_message": tool.error,
        "cut": tool.cut or None,
        "otel": moment.otel,
    }
    return _event(owner, "tool_result", moment.ended_us, key, present(payload))


def _of_step(step: StepReading, owner: Owner, moment: Moment) -> Event:
    payload = {
        "kind": step.kind,
        **step.facts,
        "ok": step.error is None,
        "error": step.error,
        "duration_ms": (moment.ended_us - moment.began_us) / 1000,
        "otel": moment.otel,
    }
    return _event(owner, STEP_TYPE, moment.ended_us, moment.key, present(payload))


def _event(
    owner: Owner,
    kind: str,
    ts_us: int,
    key: str,
    payload: dict[str, Any],
    *,
    checkpoint: Any = None,
) -> Event:
    checkpoint = checkpoint if isinstance(checkpoint, str) else owner.checkpoint
    event = {
        "session_id": owner.session_id,
        "ts": ts_us,
        "type": kind,
        "event_id": bounded_id(key),
        "source": owner.source,
        "checkpoint": bounded_id(checkpoint) if checkpoint else None,
        "user": owner.user,
        "project": owner.project,
        "payload": payload,
    }
    return present(event)
