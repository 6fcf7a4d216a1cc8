"""Log records of Cursor's export for teams: the tokens of each request, failures, and messages if a
team exports them. What a correction voids is named in its event, and not undone."""

from penstock.events.messages import Message, as_text, present
from penstock.ingest.otlp.claude_code import other_event, request_facts
from penstock.ingest.otlp.events import EventReading, ModelCallReading, Reading, RecordReading
from penstock.ingest.otlp.records import LogRecord, Origin, text

#: The tokens of a request, and an answer, which may be of one call.
USAGE, ANSWER = "cursor.api_request", "cursor.conversation_assistant_message"
_PREFIX, _SCOPE = "cursor.", "cursor.telemetry"
_REQUEST = "cursor.api.request."


def read_log(record: LogRecord, origin: Origin) -> RecordReading | None:
    if origin.scope != _SCOPE:
        return None
    name = record.name or as_text(record.body)  # some records have only a short name in the body
    name = _PREFIX + name.removeprefix(_PREFIX).replace(".", "_")
    reading = _read_record(name, record)
    event = text(record.attributes, "cursor.event.id")
    is_call = isinstance(reading, ModelCallReading)
    return RecordReading(reading, f"event:{event}" if event else None, name, waits=is_call)


def _read_record(name: str, record: LogRecord) -> Reading:
    attributes, body = record.attributes, record.body
    told = {key.removeprefix(_REQUEST): value for key, value in attributes.items()}
    told["model"] = attributes.get("cursor.model.name")
    facts = present({"request_id": text(attributes, "cursor.request.id")})
    match name:
        case "cursor.conversation_user_message":
            return EventReading("user_message", {"text": as_text(body), **facts})
        case "cursor.api_request":
            return ModelCallReading(facts=request_facts(told) | facts)
        case "cursor.conversation_assistant_message":
            return ModelCallReading(answers=[Message("assistant", text=as_text(body))], facts=facts)
        case "cursor.api_error":
            message = text(attributes, "cursor.api.error.message", "error.message", "error.type")
            failure = {"message": message or "the request failed", "error_class": "provider_error"}
            return EventReading("error", failure | request_facts(told) | facts)
    return other_event(name.removeprefix(_PREFIX), attributes | present({"body": body}), _PREFIX)
