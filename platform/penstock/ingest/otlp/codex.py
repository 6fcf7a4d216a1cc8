"""Log records of Codex. They report prompts (with `log_user_prompt`), tool calls with their
outputs, the tokens of each answer, and the last answer of each turn (with
`log_agent_responses`)."""

from typing import Any

from penstock.events.messages import Message, present
from penstock.ingest.otlp.claude_code import decision, other_event
from penstock.ingest.otlp.events import (
    EventReading,
    ModelCallReading,
    Reading,
    RecordReading,
    ToolReading,
)
from penstock.ingest.otlp.records import (
    Attributes,
    LogRecord,
    Origin,
    count,
    milliseconds,
    structured,
    text,
    truth,
    usage,
)

_PREFIX = "codex."
#: Internals of requests, whose answers are reported separately.
_NOISE = ("websocket_", "auth_recovery", "startup_phase", "plugin_", "process_")


def read_log(record: LogRecord, _origin: Origin) -> RecordReading | None:
    if not record.name.startswith(_PREFIX):
        return None
    name, attributes, key = record.name.removeprefix(_PREFIX), record.attributes, None
    reading = _read_record(name, attributes)
    if name == "tool_result" and (call := text(attributes, "call_id")):
        key = f"tool:{call}"
    elif name == "agent_response" and (item := text(attributes, "item.id")):
        key = f"item:{item}"
    return RecordReading(reading, key, name, waits=isinstance(reading, ModelCallReading))


def _read_record(name: str, attributes: Attributes) -> Reading | None:
    match name:
        case "conversation_starts":
            return EventReading("session_start", _start(attributes))
        case "user_prompt":
            prompt = text(attributes, "prompt") or "[REDACTED]"
            length = count(attributes, "prompt_length")
            return EventReading("user_message", present({"text": prompt, "prompt_length": length}))
        case "sse_event":
            return _stream_event(attributes)
        case "api_request":
            return _request(attributes)
        case "agent_response":
            said = Message("assistant", text=text(attributes, "response"))
            cut = ["output"] * bool(truth(attributes, "response_truncated"))
            facts = present({"model": _model(attributes), "turn_id": text(attributes, "turn.id"),
                             "agent": text(attributes, "agent.type")})  # fmt: skip
            return ModelCallReading(answers=[said], facts=facts, cut=cut)
        case "tool_result":
            return _tool_result(attributes)
        case "tool_decision":
            return decision(attributes, text(attributes, "call_id"))
    return None if name.startswith(_NOISE) else other_event(name, attributes, _PREFIX)


def _model(attributes: Attributes) -> str | None:
    return text(attributes, "slug", "model")


def _start(attributes: Attributes) -> dict[str, Any]:
    return present(
        {
            "client": text(attributes, "originator") or "codex",
            "client_version": text(attributes, "app.version"),
            "model": _model(attributes),
            "effort": text(attributes, "reasoning_effort"),
            "approval_policy": text(attributes, "approval_policy"),
            "sandbox_policy": text(attributes, "sandbox_policy"),
        }
    )


def _stream_event(attributes: Attributes) -> Reading | None:
    error = text(attributes, "error.message")
    if error is not None:
        return EventReading("error", {"message": error, "error_class": "provider_error"})
    if text(attributes, "event.kind") != "response.completed":
        return None
    counts = usage(
        attributes,
        prompt=["input_token_count"],
        completion=["output_token_count"],
        cached=["cached_token_count"],
        thinking=["reasoning_token_count"],
    )
    if counts is None:
        return None  # the end of the stream; another record has the counts
    facts = {"model": _model(attributes), "usage": counts,
             "latency_ms": milliseconds(attributes, "duration_ms")}  # fmt: skip
    return ModelCallReading(facts=present(facts))


def _request(attributes: Attributes) -> Reading | None:
    """A failed request; successful ones are reported by their stream."""
    error = text(attributes, "error.message")
    if error is None:
        return None
    payload = {"message": error, "error_class": "provider_error",
               "status_code": attributes.get("http.response.status_code"),
               "attempt": count(attributes, "attempt")}  # fmt: skip
    return EventReading("error", present(payload))


def _tool_result(attributes: Attributes) -> ToolReading:
    ok = truth(attributes, "success")
    output = text(attributes, "output")
    facts = {"duration_ms": milliseconds(attributes, "duration_ms"),
             "mcp_server": text(attributes, "mcp_server")}  # fmt: skip
    return ToolReading(
        name=text(attributes, "tool_name"),
        call_id=text(attributes, "call_id"),
        arguments=structured(attributes.get("arguments")),
        output=output,
        ok=ok,
        error=output if ok is False else None,
        facts=present(facts),
    )
