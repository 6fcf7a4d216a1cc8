"""Sessions that Penstock exported in a common form, and imports again unchanged.

Fields that the form has are read from there. The rest of an event, and events that the form does
not have, are kept under the name `penstock`, which other readers ignore.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.events.messages import present
from penstock_jobs.importers import fields
from penstock_jobs.importers.importer import ImportedEvent

Payload = dict[str, Any]
#: Name of Penstock's own part in other forms.
OWN = "penstock"
ENVELOPE = (
    "ts", "type", "event_id", "seq", "source", "source_key", "checkpoint", "user", "project",
)  # fmt: skip
_USAGE = {
    "prompt": "prompt_tokens", "completion": "completion_tokens", "cached": "cached_tokens",
}  # fmt: skip
_TOKENS = {
    "prompt_ids": "prompt_token_ids", "completion_ids": "completion_token_ids",
    "logprobs": "logprobs",
}  # fmt: skip

# The payload that each part of a form yields. The writer uses it too, to find what it has to keep
# beside.


def step_payload(step: Mapping[str, Any]) -> Payload:
    payload: Payload = {"text": step.get("message")}
    if step.get("is_copied_context"):
        payload["is_copied_context"] = True
    if step.get("source") != "agent":
        return payload
    metrics = fields.mapping(step, "metrics")
    payload |= {
        "thinking": step.get("reasoning_content"),
        "model": step.get("model_name"),
        "usage": _renamed(metrics, _USAGE),
        "tokens": _renamed(metrics, _TOKENS),
        "tool_calls": [
            {
                "id": call.get("tool_call_id"),
                "name": call.get("function_name"),
                "arguments": call.get("arguments"),
            }
            for call in fields.rows(step, "tool_calls")
        ]
        or None,
    }
    return present(payload)


def result_payload(result: Mapping[str, Any]) -> Payload:
    payload = {"call_id": result.get("source_call_id"), "output": result.get("content")}
    return present(payload)


def message_payload(message: Mapping[str, Any]) -> Payload:
    if message.get("role") == "tool":
        result = {"call_id": message.get("tool_call_id"), "output": message.get("content")}
        return present(result | {"tool": message.get("name")})
    payload: Payload = {"text": message.get("content")}
    if message.get("role") == "assistant":
        payload["thinking"] = message.get("reasoning_content")
        calls = fields.rows(message, "tool_calls")
        payload["tool_calls"] = [
            {"id": call.get("id")}
            | {name: fields.at(call, "function", name) for name in ("name", "arguments")}
            for call in calls
        ] or None
    return present(payload)


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> Payload | None:
    found = {name: row[other] for name, other in names.items() if row.get(other) is not None}
    return found or None


def step_metrics(payload: Mapping[str, Any]) -> Payload:
    """The tokens of a model call under ATIF's names."""
    usage, tokens = fields.mapping(payload, "usage"), fields.mapping(payload, "tokens")
    metrics = {other: usage.get(name) for name, other in _USAGE.items()}
    return present(metrics | {other: tokens.get(name) for name, other in _TOKENS.items()})


def remainder(event: Mapping[str, Any], said: Payload) -> Payload:
    """The parts of an event that the payload `said` lacks: the envelope and other fields."""
    payload = event["payload"]
    rest = {
        name: value for name, value in payload.items() if name not in said or said[name] != value
    }
    absent = [name for name in said if name not in payload]
    own = {name: event.get(name) for name in ENVELOPE} | {"payload": rest or None}
    return present(own | {"absent": absent or None})


def _restored(session: str, own: Mapping[str, Any], said: Payload) -> ImportedEvent:
    absent = fields.items(own, "absent")
    payload = {name: value for name, value in said.items() if name not in absent}
    envelope = {name: own[name] for name in ENVELOPE if name in own}
    whole = envelope | {"payload": payload | fields.mapping(own, "payload"), "session_id": session}
    return msgspec.convert(whole, ImportedEvent)


def penstock_trajectory(document: Mapping[str, Any]) -> list[ImportedEvent] | None:
    """The events of an ATIF document that Penstock wrote. None if it did not, or if its own part
    is damaged."""
    own = fields.mapping(document, "extra", OWN)
    if not own:
        return None
    parts: list[tuple[Mapping[str, Any], Payload]] = []
    for step in fields.rows(document, "steps"):
        parts.append((step, step_payload(step)))
        results = fields.rows(step, "observation", "results")
        parts += [(result, result_payload(result)) for result in results]
    return _own_events(own, parts, lambda part: fields.mapping(part, "extra"))


def penstock_session(row: Mapping[str, Any]) -> list[ImportedEvent] | None:
    """The events of a line of messages that Penstock wrote, as `penstock_trajectory`."""
    own = fields.mapping(row, OWN)
    if not own:
        return None
    parts = [(message, message_payload(message)) for message in fields.rows(row, "messages")]
    return _own_events(own, parts, lambda part: part)


def _own_events(
    own: Mapping[str, Any],
    parts: Sequence[tuple[Mapping[str, Any], Payload]],
    beside: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> list[ImportedEvent] | None:
    session = own.get("session_id")
    if not isinstance(session, str):
        return None

    def events() -> Iterator[ImportedEvent]:
        for event in fields.rows(own, "events"):
            yield _restored(session, event, {})
        for part, said in parts:
            if event := fields.mapping(beside(part), OWN):
                yield _restored(session, event, said)

    try:
        restored = list(events())
    except (msgspec.ValidationError, KeyError, TypeError):
        return None
    return sorted(restored, key=lambda event: (event.seq is None, event.seq or 0))
