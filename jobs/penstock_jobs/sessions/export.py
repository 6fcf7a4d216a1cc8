"""Exports sessions in common forms: ATIF, a document per session, and messages, a line per session.

Both keep everything: importing them gives the same events again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.events.messages import present
from penstock_jobs.importers.fields import digest_of
from penstock_jobs.importers.penstock_documents import (
    ENVELOPE,
    OWN,
    message_payload,
    remainder,
    result_payload,
    step_metrics,
    step_payload,
)
from penstock_jobs.rewards.rows import quoted

SessionForm = Literal["atif", "messages"]
Event = dict[str, Any]
_ATIF = "ATIF-v1.7"
_UNKNOWN = "unknown"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SESSIONS_AT_ONCE = 100
_LIST = "SELECT DISTINCT session_id FROM ({query}) ORDER BY session_id"
_EVENTS = """SELECT session_id, epoch_us(ts) AS ts, type, event_id, seq, source, source_key,
    checkpoint, "user", project, payload FROM events
    WHERE session_id IN ({sessions}) ORDER BY session_id, ts, seq, event_id"""


@dataclass
class SessionExport:
    sessions: int = 0
    events: int = 0


def export_sessions(
    client: Client, query: str, form: SessionForm, out: Path, as_of: str | None = None
) -> SessionExport:
    """Write the sessions whose `session_id` a query selects into a new folder of ATIF documents, or
    a new file of messages. Raises InvalidInput."""
    if out.exists():
        raise InvalidInput(what=f"--out {out}", why="it exists already")
    report = SessionExport()
    sessions = events_of_sessions(client, sessions_of(client, query, as_of), as_of)
    (out if form == "atif" else out.parent).mkdir(parents=True, exist_ok=True)
    if form == "messages":
        out.touch()
    for events in sessions:
        report.sessions += 1
        report.events += len(events)
        make, path, mode = messages_row, out, "ab"
        if form == "atif":
            name = f"{digest_of(events[0]['session_id'])[:24]}.trajectory.json"
            make, path, mode = atif_document, out / name, "wb"
        with path.open(mode) as file:
            file.write(msgspec.json.encode(make(events)) + b"\n")
    return report


def sessions_of(client: Client, query: str, as_of: str | None) -> list[str]:
    """The sessions whose `session_id` a query selects, sorted."""
    names: list[str] = []
    with client.rows(_LIST.format(query=query.strip().rstrip(";")), as_of) as answer:
        for batch in answer.batches:
            names += batch.column(0).to_pylist()
    return names


def events_of_sessions(
    client: Client, names: Sequence[str], as_of: str | None
) -> Iterator[list[Event]]:
    for start in range(0, len(names), _SESSIONS_AT_ONCE):
        some = quoted(names[start : start + _SESSIONS_AT_ONCE])
        events: list[Event] = []
        with client.rows(_EVENTS.format(sessions=some), as_of) as answer:
            for batch in answer.batches:
                for row in batch.to_pylist():
                    if events and events[0]["session_id"] != row["session_id"]:
                        yield events
                        events = []
                    events.append(row | {"payload": msgspec.json.decode(row["payload"])})
        if events:
            yield events


# ATIF


def atif_document(events: Sequence[Event]) -> dict[str, Any]:
    start = session_start(events)
    steps: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    callers: dict[str, dict[str, Any]] = {}
    if isinstance(system := start.get("system"), str):
        steps.append({"source": "system", "message": system})
    for event in events:
        payload = event["payload"]
        if event["type"] in ("user_message", "model_call"):
            step = _step(event)
            steps.append(step)
            for call in step.get("tool_calls", ()):
                callers[call["tool_call_id"]] = step
        elif event["type"] == "tool_result" and (
            caller := callers.get(str(payload.get("call_id"))) or _last_answer(steps)
        ):
            _add_result(caller, event)
        else:
            rest.append(_whole(event))
    numbered = [{"step_id": at + 1} | step for at, step in enumerate(steps)]
    models = [step["model_name"] for step in steps if "model_name" in step]
    agent = {
        "name": start.get("client") or events[0].get("source") or _UNKNOWN,
        "version": start.get("client_version") or _UNKNOWN,
        "model_name": models[0] if models else None,
        "tool_definitions": _objects(start.get("tools")),
    }
    name = events[0]["session_id"]
    return {
        "schema_version": _ATIF,
        "session_id": name,
        "trajectory_id": name,
        "agent": present(agent),
        "steps": numbered or [{"step_id": 1, "source": "system", "message": ""}],
        "extra": {OWN: {"session_id": name, "events": rest}},
    }


def _step(event: Event) -> dict[str, Any]:
    payload = event["payload"]
    answers = event["type"] == "model_call"
    step: dict[str, Any] = {
        "timestamp": (_EPOCH + timedelta(microseconds=event["ts"])).isoformat(),
        "source": "agent" if answers else "user",
        "message": _text(payload.get("text")) or "",
        "is_copied_context": True if payload.get("is_copied_context") is True else None,
    }
    if answers:
        calls = [
            {
                "tool_call_id": call["id"],
                "function_name": call["name"],
                "arguments": _object(call.get("arguments")),
            }
            for call in payload.get("tool_calls") or ()
        ]
        step |= {
            "model_name": _text(payload.get("model")),
            "reasoning_content": _text(payload.get("thinking")),
            "tool_calls": calls or None,
            "metrics": step_metrics(payload) or None,
        }
    step = present(step)
    return step | {"extra": {OWN: remainder(event, step_payload(step))}}


def _add_result(step: dict[str, Any], event: Event) -> None:
    payload = event["payload"]
    known = [call["tool_call_id"] for call in step.get("tool_calls", ())]
    call_id, output = payload.get("call_id"), payload.get("output")
    content = None if output is None else _json_text(output)
    result = present({"source_call_id": call_id if call_id in known else None, "content": content})
    own = remainder(event, result_payload(result))
    observation = step.setdefault("observation", {"results": []})
    observation["results"].append(result | {"extra": {OWN: own}})


def _last_answer(steps: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return next((step for step in reversed(steps) if step["source"] == "agent"), None)


# Messages


def messages_row(events: Sequence[Event]) -> dict[str, Any]:
    start = session_start(events)
    messages: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    if isinstance(system := start.get("system"), str):
        messages.append({"role": "system", "content": system})
    for event in events:
        if (message := message_of_event(event["type"], event["payload"])) is None:
            rest.append(_whole(event))
        else:
            messages.append(message | {OWN: remainder(event, message_payload(message))})
    name = events[0]["session_id"]
    row = {"session_id": name, "messages": messages, "tools": _objects(start.get("tools"))}
    return present(row) | {OWN: {"session_id": name, "events": rest}}


def message_of_event(kind: str, payload: Mapping[str, Any]) -> dict[str, Any] | None:
    text = _text(payload.get("text"))
    match kind:
        case "user_message":
            return {"role": "user", "content": text or ""}
        case "model_call":
            thinking = _text(payload.get("thinking"))
            calls = [_tool_call(call) for call in payload.get("tool_calls") or ()] or None
            message = {"content": text, "reasoning_content": thinking, "tool_calls": calls}
            return present({"role": "assistant", **message})
        case "tool_result":
            call_id, name = _text(payload.get("call_id")), _text(payload.get("tool"))
            message = {"tool_call_id": call_id, "name": name}
            return present(
                {"role": "tool", **message, "content": _json_text(payload.get("output"))}
            )
    return None


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = _json_text(call.get("arguments"))
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call["id"], "type": "function", "function": function}


# Values


def session_start(events: Sequence[Event]) -> dict[str, Any]:
    starts = [event["payload"] for event in events if event["type"] == "session_start"]
    return starts[-1] if starts else {}


def _whole(event: Event) -> dict[str, Any]:
    return present({name: event.get(name) for name in ENVELOPE} | {"payload": event["payload"]})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]] | None:
    whole = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return list(value) if whole and isinstance(value, list) and value else None


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
