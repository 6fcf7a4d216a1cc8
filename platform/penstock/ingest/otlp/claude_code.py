"""Telemetry of Claude Code. Its log records report a model request up to four times: its cost
(`api_request`, always), its text (`assistant_response`), and the bodies of request and response. A
`tool_result` says how a tool ended; its output is in the next request's body. The most complete
report of a session counts; the others become events of their own types (`x_…`)."""

import json
from typing import Any

from penstock.events.messages import Message, joined, present, system_text, usage_of
from penstock.ingest.otlp.events import (
    EventReading,
    ModelCallReading,
    Reading,
    RecordReading,
    StepReading,
    ToolReading,
)
from penstock.ingest.otlp.records import (
    Attributes,
    LogRecord,
    Origin,
    Span,
    count,
    messages_in,
    milliseconds,
    number,
    objects,
    structured,
    text,
    truth,
)

#: What a session's records may report in full.
BODIES, RESULTS = "bodies", "results"
_PREFIX = "claude_code."
_SPANS = "com.anthropic.claude_code"
_REDACTED = "<REDACTED>"
#: The start of the messages in a request's body, after the model.
_MESSAGES = '"messages":['
_HEAD_CHARS = 500
_decoder = json.JSONDecoder()
_NOISE = {"auth", "internal_error", "mcp_server_connection", "plugin_installed", "plugin_loaded",
          "feedback_survey"}  # fmt: skip
#: Sender and place of a record, which events hold elsewhere.
_IDENTITY = {"user.email", "user.id", "user.account_uuid", "user.account_id", "organization.id",
             "session.id", "event.name", "event.timestamp", "event.sequence", "terminal.type",
             "app.version", "app.entrypoint"}  # fmt: skip


#: By record name: the full content that makes the record redundant in its session.
_LESSER = {"api_request": BODIES, "assistant_response": BODIES, "tool_result": RESULTS}


def read_log(record: LogRecord, origin: Origin) -> RecordReading | None:
    name = _event_name(record, origin)
    reading = _read_record(name, record.attributes) if name else None
    if not name or reading is None:
        return RecordReading(None) if name else None
    is_call = isinstance(reading, ModelCallReading)
    full = {"api_response_body": BODIES, "api_request_body": RESULTS}.get(name) if is_call else None
    is_cut = name == "api_response_body" and not is_call
    return RecordReading(
        reading,
        None if is_cut else _record_key(name, record),
        name,
        waits=name == "api_response_body" or name in _LESSER,
        full=full,
        lesser_than=_LESSER.get(name),
    )


def _event_name(record: LogRecord, origin: Origin) -> str | None:
    name = record.name
    for told in (name, record.body):
        if isinstance(told, str) and told.startswith(_PREFIX):
            return told.removeprefix(_PREFIX)
    return name if origin.scope.startswith(_SPANS) else None


def _record_key(name: str, record: LogRecord) -> str | None:
    attributes = record.attributes
    if name in ("api_request", "api_response_body", "assistant_response", "api_error"):
        request = text(attributes, "request_id", "client_request_id", "message.uuid")
        return f"request:{request}" if request else None
    if name == "user_prompt" and record.span_id:  # the span of everything that it causes
        return f"prompt:{record.trace_id}:{record.span_id}"
    if name == "user_prompt" and (prompt := text(attributes, "prompt.id")):
        return f"prompt:{prompt}"
    if name == "tool_result" and (call := text(attributes, "tool_use_id")):
        return f"tool:{call}"
    return None


def _read_record(name: str, attributes: Attributes) -> Reading | None:
    match name:
        case "user_prompt":
            prompt = text(attributes, "prompt") or _REDACTED
            more = {"prompt_length": count(attributes, "prompt_length"),
                    "command": text(attributes, "command_name")}  # fmt: skip
            return EventReading("user_message", {"text": prompt, **present(more)})
        case "api_request":
            return ModelCallReading(facts=request_facts(attributes))
        case "assistant_response":
            said = text(attributes, "response")
            answers = _answers(said if said != _REDACTED else None)
            cut = ["output"] * bool(truth(attributes, "response_truncated"))
            return ModelCallReading(answers=answers, facts=request_facts(attributes), cut=cut)
        case "api_response_body":
            return _response_body(attributes)
        case "api_request_body":
            return _request_body(attributes)
        case "api_error":
            return _error(attributes)
        case "tool_result":
            return _tool_result(attributes)
        case "tool_decision":
            return decision(attributes, text(attributes, "tool_use_id"))
        case "compaction":
            return _compaction(attributes)
    return None if name in _NOISE else other_event(name, attributes)


def other_event(name: str, attributes: Attributes, prefix: str = _PREFIX) -> EventReading:
    """A record of another kind, under its own name and without its sender."""
    kind = "x_" + f"{prefix}{name}".replace(".", "_")[:200]
    kept = {key: value for key, value in attributes.items() if key not in _IDENTITY}
    return EventReading(kind, kept)


def decision(attributes: Attributes, call_id: str | None) -> EventReading:
    """A user's refusal is feedback. Consent, and decisions of rules, are no judgement."""
    source = (text(attributes, "source") or "").lower()
    verdict = (text(attributes, "decision") or "").lower()
    tool = text(attributes, "tool_name")
    if source.startswith("user") and verdict in ("reject", "denied", "abort"):
        payload = {"kind": "reject", "target": call_id, "value": source, "tool": tool}
        key = f"decision:{call_id}" if call_id else None
        return EventReading("feedback", present(payload), key)
    payload = {"call_id": call_id, "tool": tool, "decision": verdict, "source": source}
    return EventReading("x_tool_decision", present(payload))


def read_span(span: Span, origin: Origin) -> Reading | None:
    if not is_own(span):
        return None
    name, attributes = span.name.removeprefix(_PREFIX), span.attributes
    if name == "llm_request":
        said = text(attributes, "response.model_output")
        facts = request_facts(attributes)
        if said is None:
            return StepReading("llm", facts)
        return ModelCallReading(answers=_answers(said), facts=facts)
    if name == "tool":
        output = _span_output(span)
        call_id = text(attributes, "tool_use_id", "gen_ai.tool.call.id")
        tool = text(attributes, "tool_name")
        if output is None or call_id is None:
            return StepReading("tool", present({"call_id": call_id, "tool": tool}))
        given = structured(attributes.get("tool_input"))
        ok = truth(attributes, "success")
        return ToolReading(tool, call_id, given, output, ok)
    return StepReading(name, present({
        "call_id": text(attributes, "tool_use_id"),
        "decision": text(attributes, "decision"),
        "hook": text(attributes, "hook_name"),
    }))  # fmt: skip


def is_own(span: Span) -> bool:
    return span.name.startswith(_PREFIX)


def span_key(span: Span) -> str | None:
    """The request that a span or record reports."""
    request = text(span.attributes, "request_id", "gen_ai.response.id")
    return f"request:{request}" if request and span.name == f"{_PREFIX}llm_request" else None


def span_prompt(span: Span) -> str | None:
    prompt = text(span.attributes, "user_prompt")
    is_interaction = span.name == f"{_PREFIX}interaction"
    return prompt if is_interaction and prompt != _REDACTED else None


def _span_output(span: Span) -> Any:
    for event in span.events:
        if event.name == "tool.output":
            held = event.attributes
            return next((held[name] for name in ("output", "content", "tool_output", "stdout")
                         if name in held), held)  # fmt: skip
    return None


def request_facts(attributes: Attributes) -> dict[str, Any]:
    usage = usage_of(
        {
            "input_tokens": count(attributes, "input_tokens"),
            "output_tokens": count(attributes, "output_tokens"),
            "cache_read_input_tokens": count(attributes, "cache_read_tokens"),
            "cache_creation_input_tokens": count(attributes, "cache_creation_tokens"),
        }
    )
    return present(
        {
            "call_id": text(attributes, "request_id"),
            "model": text(attributes, "model", "gen_ai.request.model"),
            "usage": usage,
            "latency_ms": milliseconds(attributes, "duration_ms"),
            "ttft_ms": milliseconds(attributes, "ttft_ms"),
            "finish_reason": text(attributes, "stop_reason"),
            "cost_usd": number(attributes, "cost_usd"),
            "query_source": text(attributes, "query_source"),
            "effort": text(attributes, "effort"),
            "prompt_id": text(attributes, "prompt.id"),
        }
    )


def _answers(said: str | None) -> list[Message]:
    return [Message("assistant", text=said)] if said is not None else []


def _body(attributes: Attributes) -> dict[str, Any] | None:
    if truth(attributes, "body_truncated"):
        return _begun(text(attributes, "body") or "")
    body = structured(attributes.get("body"))
    return body if isinstance(body, dict) else None


def _begun(body: str) -> dict[str, Any] | None:
    """The complete part of a truncated request body: its messages precede the system prompt and
    tools, which take most of it."""
    start = body[:_HEAD_CHARS].find(_MESSAGES)
    if start < 0:
        return None
    try:
        messages, end = _decoder.raw_decode(body, start + len(_MESSAGES) - 1)
    except (ValueError, RecursionError):
        return None
    return {"messages": messages} if isinstance(messages, list) and end else None


def _response_body(attributes: Attributes) -> Reading | None:
    body = _body(attributes)
    if body is None or "content" not in body:
        return _cut_body("api_response_body", attributes)
    facts = request_facts(attributes) | present(
        {
            "model": text(body, "model"),
            "finish_reason": text(body, "stop_reason"),
            "usage": usage_of(body.get("usage")),
        }
    )
    answer = {"role": "assistant", "content": body.get("content")}
    return ModelCallReading(answers=[joined(messages_in([answer], "assistant"))], facts=facts)


def _request_body(attributes: Attributes) -> Reading | None:
    """Tool outputs in the history of a request body. Prompts have their own records, in the user's
    words. Without an answer it is not a call itself."""
    body = _body(attributes)
    if body is None:
        return _cut_body("api_request_body", attributes)
    messages = messages_in(body.get("messages"))
    for message in messages:
        if message.role == "user":
            message.text = None
    system = messages_in(body.get("system"), "system")
    return ModelCallReading(
        messages=messages,
        system=system_text(system),
        tools=objects(body.get("tools")) or None,
        cut=["system", "tools"] * ("system" not in body),
        asks_only=True,
    )


def _cut_body(name: str, attributes: Attributes) -> EventReading:
    payload = {
        "body_length": count(attributes, "body_length"),
        "body_ref": text(attributes, "body_ref"),
        "cut": bool(truth(attributes, "body_truncated")),
        "request_id": text(attributes, "request_id"),
        "query_source": text(attributes, "query_source"),
    }
    return EventReading(f"x_claude_code_{name}", present(payload))


def _error(attributes: Attributes) -> EventReading:
    payload = {
        "message": text(attributes, "error") or "the request failed",
        "error_class": "provider_error",
        "status_code": attributes.get("status_code"),
        "attempt": count(attributes, "attempt"),
        **request_facts(attributes),
    }
    return EventReading("error", present(payload))


def _tool_result(attributes: Attributes) -> ToolReading:
    ok = truth(attributes, "success")
    error = text(attributes, "error", "error_type") if ok is False else None
    given = structured(attributes.get("tool_input", attributes.get("tool_parameters")))
    facts = {
        "duration_ms": milliseconds(attributes, "duration_ms"),
        "result_bytes": count(attributes, "tool_result_size_bytes"),
        "decision": text(attributes, "decision_type"),
        "decision_source": text(attributes, "decision_source"),
        "prompt_id": text(attributes, "prompt.id"),
        "error_class": "user_aborted" if text(attributes, "decision_type") == "reject" else None,
    }
    return ToolReading(
        name=text(attributes, "tool_name"),
        call_id=text(attributes, "tool_use_id"),
        arguments=given,
        ok=ok,
        error=error,
        facts=present(facts),
    )


def _compaction(attributes: Attributes) -> EventReading:
    payload = {
        "trigger": text(attributes, "trigger"),
        "tokens_before": count(attributes, "pre_tokens"),
        "tokens_after": count(attributes, "post_tokens"),
        "ok": truth(attributes, "success"),
        "error": text(attributes, "error"),
    }
    return EventReading("compaction", present(payload))
