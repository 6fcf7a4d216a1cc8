"""Log records of the GenAI conventions: one with all of a call, or, before that, one for each
message. They carry the ids of the call's span."""

from typing import Any

from penstock.otlp.attributes import count, structured, text
from penstock.otlp.dialects import genai
from penstock.otlp.readings import ModelCallReading, Reading
from penstock.otlp.records import LogRecord, Origin

#: What only a call that was answered has.
_OF_ANSWERS = ("gen_ai.response.id", "gen_ai.response.finish_reasons",
               "gen_ai.usage.output_tokens")  # fmt: skip


def read_record(record: LogRecord) -> Reading | None:
    name = record.name
    held = record.attributes
    body = structured(record.body)
    if isinstance(body, dict):
        held = held | body
    if name == genai.DETAILS:
        call = genai.read_call(held)
        # Gemini's command line tells the request as well, before there is an answer.
        call.asks_only = not call.answers and not any(map(held.get, _OF_ANSWERS))
        return call
    if not genai.is_message_event(name):
        return None
    message = genai.event_message(name, held)
    if message.role == "system":
        return ModelCallReading(system=message.text, asks_only=True)
    if name == genai.CHOICE:
        if message.finish_reason is None:
            reason = held.get("finish_reason")
            message.finish_reason = reason if isinstance(reason, str) else None
        return ModelCallReading(answers=[message], facts=_facts(held))
    # A record of the history repeats what another call's told.
    return ModelCallReading(
        messages=[message] if message.role != "assistant" else [], asks_only=True
    )


def record_key(record: LogRecord, origin: Origin) -> str | None:
    """The call's span names the call where the record is known to stand below it; elsewhere several
    calls may stand below one span. Each of several choices is a call of its own."""
    if (
        not record.trace_id
        or not record.span_id
        or record.name not in (genai.DETAILS, genai.CHOICE)
    ):
        return None
    call = f"{record.trace_id}:{record.span_id}"
    body = structured(record.body)
    held = record.attributes | (body if isinstance(body, dict) else {})
    if not origin.scope.startswith(genai.LOGGED_APART):
        name = text(held, "gen_ai.response.id")
        return f"{call}:{name}" if name else None
    index = count(held, "index") if record.name == genai.CHOICE else None
    return f"{call}:{index}" if index else call


def _facts(held: dict[str, Any]) -> dict[str, Any]:
    facts = genai.call_facts(held)
    facts.pop("finish_reason", None)
    return facts
