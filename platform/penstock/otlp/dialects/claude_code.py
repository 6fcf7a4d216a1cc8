"""Claude Code's telemetry. Its log records tell a request to the model up to four times: what it
cost (`api_request`, always), the text (`assistant_response`), and the bodies of request and
response. A `tool_result` says how a tool ended, and the next request's body what it gave. The
fullest of what a session tells counts; the others become events of their own types (`x_…`)."""

import json
from typing import Any

from penstock.events.messages import Message, joined, system_text
from penstock.otlp.attributes import (
    count,
    messages_in,
    milliseconds,
    number,
    objects,
    present,
    structured,
    text,
    truth,
)
from penstock.otlp.events import EventReading, ModelCallReading, Reading, StepReading, ToolReading
from penstock.otlp.records import Attributes, LogRecord, Origin, Span

#: What a session's records may tell in full.
BODIES, RESULTS = "bodies", "results"
_PREFIX = "claude_code."
_SPANS = "com.anthropic.claude_code"
_REDACTED = "<REDACTED>"
#: How a request's body begins: with the model, and then this.
_MESSAGES = '"messages":['
_HEAD_CHARS = 500
_decoder = json.JSONDecoder()
#: They say nothing of a session's work.
_NOISE = {"auth", "internal_error", "mcp_server_connection", "plugin_installed", "plugin_loaded",
          "feedback_survey"}  # fmt: skip
#: Who sends, and where the record stands; events have it elsewhere.
_IDENTITY = {"user.email", "user.id", "user.account_uuid", "user.account_id", "organization.id",
             "session.id", "event.name", "event.timestamp", "event.sequence", "terminal.type",
             "app.version", "app.entrypoint"}  # fmt: skip


def event_name(record: LogRecord, origin: Origin) -> str | None:
    """Without its prefix; None for what is not of Claude Code."""
    name = record.name
    if name.startswith(_PREFIX):
        return name.removeprefix(_PREFIX)
    if isinstance(record.body, str) and record.body.startswith(_PREFIX):
        return record.body.removeprefix(_PREFIX)
    return name if name and origin.scope.startswith(_SPANS) else None


def record_key(name: str, record: LogRecord) -> str | None:
    """What names the event, where something does."""
    attributes = record.attributes
    if name in ("api_request", "api_response_body", "assistant_response", "api_error"):
        request = text(attributes, "request_id", "client_request_id", "message.uuid")
        return f"request:{request}" if request else None
    if name == "user_prompt" and record.span_id:  # the span of all that it sets off
        return f"prompt:{record.trace_id}:{record.span_id}"
    if name == "user_prompt" and (prompt := text(attributes, "prompt.id")):
        return f"prompt:{prompt}"
    if name == "tool_result" and (call := text(attributes, "tool_use_id")):
        return f"tool:{call}"
    return None


def full_kind(name: str, reading: Reading | None) -> str | None:
    """Which content a session tells in full, as this record shows."""
    if name == "api_response_body" and isinstance(reading, ModelCallReading):
        return BODIES
    if name == "api_request_body" and isinstance(reading, ModelCallReading):
        return RESULTS
    return None


def waits(name: str) -> bool:
    """Whether the rest of a batch decides what becomes of it."""
    return name in ("api_request", "api_response_body", "assistant_response", "tool_result")


def lesser_kinds(name: str) -> tuple[str, ...]:
    """What a session must tell in full for this record to be the lesser of two."""
    return {"api_request": (BODIES,), "assistant_response": (BODIES,),
            "tool_result": (RESULTS,)}.get(name, ())  # fmt: skip


def read_record(name: str, record: LogRecord) -> Reading | None:
    attributes = record.attributes
    match name:
        case "user_prompt":
            prompt = text(attributes, "prompt") or _REDACTED
            more = {"prompt_length": count(attributes, "prompt_length"),
                    "command": text(attributes, "command_name")}  # fmt: skip
            return EventReading("user_message", {"text": prompt, **present(more)})
        case "api_request":
            return ModelCallReading(facts=_request_facts(attributes))
        case "assistant_response":
            said = text(attributes, "response")
            answers = _answers(said if said != _REDACTED else None)
            cut = ["output"] * bool(truth(attributes, "response_truncated"))
            return ModelCallReading(answers=answers, facts=_request_facts(attributes), cut=cut)
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
    """Stored under its own name, without what says who sends."""
    kind = "x_" + f"{prefix}{name}".replace(".", "_")[:200]
    kept = {key: value for key, value in attributes.items() if key not in _IDENTITY}
    return EventReading(kind, kept)


def decision(attributes: Attributes, call_id: str | None) -> EventReading:
    """A person's refusal is feedback. Consent, and what a rule decided, is no judgement."""
    source = (text(attributes, "source") or "").lower()
    verdict = (text(attributes, "decision") or "").lower()
    if source.startswith("user") and verdict in ("reject", "denied", "abort"):
        payload = {"kind": "reject", "target": call_id, "value": source,
                   "tool": text(attributes, "tool_name")}  # fmt: skip
        return EventReading(
            "feedback", present(payload), f"decision:{call_id}" if call_id else None
        )
    payload = {"call_id": call_id, "tool": text(attributes, "tool_name"), "decision": verdict,
               "source": source}  # fmt: skip
    return EventReading("x_tool_decision", present(payload))


def read_span(span: Span, origin: Origin) -> Reading | None:
    if not is_own(span):
        return None
    name, attributes = span.name.removeprefix(_PREFIX), span.attributes
    if name == "llm_request":
        said = text(attributes, "response.model_output")
        facts = _request_facts(attributes)
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
    """The request that a span and a record tell of."""
    request = text(span.attributes, "request_id", "gen_ai.response.id")
    return f"request:{request}" if request and span.name == f"{_PREFIX}llm_request" else None


def span_prompt(span: Span) -> str | None:
    """The prompt that set off all below the span, where it is told."""
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


def _request_facts(attributes: Attributes) -> dict[str, Any]:
    asked, cached, written = (
        count(attributes, name)
        for name in ("input_tokens", "cache_read_tokens", "cache_creation_tokens")
    )
    counts = [each for each in (asked, cached, written) if each is not None]
    usage = {"prompt": sum(counts) if counts else None,
             "completion": count(attributes, "output_tokens"), "cached": cached}  # fmt: skip
    return present(
        {
            "call_id": text(attributes, "request_id"),
            "model": text(attributes, "model", "gen_ai.request.model"),
            "usage": present(usage) or None,
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
    """What is whole of a request's body that was cut: its messages stand before the system prompt
    and the tools, which take most of it."""
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
    facts = _request_facts(attributes)
    held = body.get("usage")
    usage: dict[str, Any] = held if isinstance(held, dict) else {}
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [each for name in names if (each := count(usage, name)) is not None]
    facts |= present(
        {
            "model": text(body, "model"),
            "finish_reason": text(body, "stop_reason"),
            "usage": present({
                "prompt": sum(counts) if counts else None,
                "completion": count(usage, "output_tokens"),
                "cached": count(usage, "cache_read_input_tokens"),
            }) or None,
        }
    )  # fmt: skip
    answer = {"role": "assistant", "content": body.get("content")}
    return ModelCallReading(answers=[joined(messages_in([answer], "assistant"))], facts=facts)


def _request_body(attributes: Attributes) -> Reading | None:
    """Of its history only what tools gave: prompts are records of their own, in the user's
    words. There is no answer in it, so that it is no call itself."""
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
        **_request_facts(attributes),
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
