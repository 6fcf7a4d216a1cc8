"""The log records of one request. Some wait for its end, because another record may report the same
more fully."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.events.messages import present
from penstock.ingest.otlp import claude_code, codex, genai
from penstock.ingest.otlp.events import (
    EventReading,
    ModelCallReading,
    Owner,
    RecordReading,
    ToolReading,
    owner_of,
)
from penstock.ingest.otlp.records import LogRecord, Origin

_TENANTS_MAX = 1_000


class FullSessions:
    """Sessions with full reports, the newest per tenant, to bound memory without letting tenants
    affect each other. In a forgotten session, or one with records in several processes, less
    complete records count too until a full one comes."""

    def __init__(self, sessions_max: int = 4_000) -> None:
        self._sessions_max = sessions_max
        self._tenants: OrderedDict[str, OrderedDict[tuple[str, str], None]] = OrderedDict()

    def note(self, tenant: str, session: str, kind: str) -> None:
        known = self._tenants.setdefault(tenant, OrderedDict())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _TENANTS_MAX:
            self._tenants.popitem(last=False)
        known[session, kind] = None
        known.move_to_end((session, kind))
        if len(known) > self._sessions_max:
            known.popitem(last=False)

    def tells(self, tenant: str, session: str, kind: str) -> bool:
        return (session, kind) in self._tenants.get(tenant, ())


#: Limits of waiting records and their content per batch, to bound memory.
_WAITING_MAX = 10_000
_WAITING_CHARS_MAX = 4 * 1024 * 1024


class LogReading(Struct):
    place: int
    record: LogRecord
    origin: Origin
    owner: Owner
    told: RecordReading


class LogBatch:
    def __init__(self, tenant: str, full_sessions: FullSessions) -> None:
        self._tenant = tenant
        self._full = full_sessions
        self._waiting: list[LogReading] = []
        self._waiting_chars = 0

    def take(self, place: int, record: LogRecord, origin: Origin) -> list[LogReading] | None:
        """Take a record; returns what can be reported now, or None if it is not from an agent."""
        owner = owner_of(record.attributes, origin, record.trace_id)
        found = (dialect.read_log(record, origin) for dialect in (claude_code, codex, genai))
        told = next((each for each in found if each is not None), None)
        if owner is None or told is None or told.reading is None:
            return None
        if told.full is not None:
            self._full.note(self._tenant, owner.session_id, told.full)
        known = LogReading(place, record, origin, owner, told)
        if not told.waits:
            return [known]
        self._waiting.append(known)
        texts = (value for value in record.attributes.values() if isinstance(value, str))
        self._waiting_chars += sum(map(len, texts))
        is_full = len(self._waiting) >= _WAITING_MAX or self._waiting_chars > _WAITING_CHARS_MAX
        return list(self.rest()) if is_full else []

    def rest(self) -> Iterator[LogReading]:
        waiting, self._waiting, self._waiting_chars = self._waiting, [], 0
        _merge(waiting)
        for known in waiting:
            told, session = known.told, known.owner.session_id
            lesser = told.lesser_than if told.reading is not None else None
            if lesser and self._full.tells(self._tenant, session, lesser):
                told.reading, told.key = _as_lesser(told), None
            yield known


def _merge(waiting: list[LogReading]) -> None:
    asked: dict[tuple[str, str | None], RecordReading] = {}
    for known in waiting:
        if known.told.name == "api_request":
            asked[known.owner.session_id, known.told.key] = known.told
    completed: dict[str, RecordReading] = {}
    for known in waiting:
        session, told = known.owner.session_id, known.told
        whole: RecordReading | None = None
        if told.name in ("assistant_response", "api_response_body") and told.key is not None:
            whole = asked.get((session, told.key))
        elif told.name == "agent_response":
            whole = completed.pop(session, None)
        elif told.name == "sse_event":
            completed[session] = told
        if whole is not None and whole is not told and _add_answer(whole, told):
            told.reading = None
    for told in (known.told for known in waiting):
        # The text of a call may come in another batch, under the call's name.
        if told.key and told.name in ("api_request", "tool_result"):
            told.key += ":usage" if told.name == "api_request" else ":run"


def _add_answer(whole: RecordReading, told: RecordReading) -> bool:
    call, answer = whole.reading, told.reading
    if not isinstance(call, ModelCallReading) or not isinstance(answer, ModelCallReading):
        return False
    if whole.name != "api_response_body":
        call.answers = answer.answers
        whole.name, whole.lesser_than = told.name, told.lesser_than
    call.facts = call.facts | answer.facts
    call.cut += answer.cut
    whole.key = told.key or whole.key
    return True


def _as_lesser(told: RecordReading) -> EventReading:
    reading = told.reading
    payload: dict[str, Any] = {}
    if isinstance(reading, ModelCallReading):
        text = reading.answers[0].text if reading.answers else None
        payload = reading.facts | present({"text": text})
    elif isinstance(reading, ToolReading):
        payload = present({
            "call_id": reading.call_id, "tool": reading.name, "ok": reading.ok,
            "arguments": reading.arguments, "error": reading.error,
        }) | reading.facts  # fmt: skip
    return EventReading(f"x_claude_code_{told.name}", payload)
