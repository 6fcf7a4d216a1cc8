"""The log records of one request. Some wait for its end, because another record may report the same
more fully."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.events.messages import present
from penstock.ingest.otlp import claude_code, codex, cursor, genai
from penstock.ingest.otlp.events import (
    EventReading,
    ModelCallReading,
    Owner,
    RecordReading,
    ToolReading,
    owner_of,
    session_of,
)
from penstock.ingest.otlp.records import LogRecord, Origin, chars_in

_TENANTS_MAX = 1_000
TRACE = "trace"
_DIALECTS = (claude_code, codex, cursor, genai)


class _Note(Struct):
    """A note about a session or trace."""

    #: The session that the root span of the trace names.
    of_root: str | None = None
    #: Where records of the trace go that name none. Decided once: a retry finds its events there.
    of_others: str | None = None


class SessionNotes:
    """Sessions with full reports, and sessions of traces: the newest per tenant, to bound memory
    without letting tenants affect each other. In a forgotten session, or one with records in
    several processes, less complete records count too until a full one comes."""

    def __init__(self, notes_max: int = 4_000) -> None:
        self._notes_max = notes_max
        self._tenants: OrderedDict[str, OrderedDict[tuple[str, str], _Note]] = OrderedDict()

    def note(self, tenant: str, session: str, kind: str) -> _Note:
        known = self._tenants.setdefault(tenant, OrderedDict())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _TENANTS_MAX:
            self._tenants.popitem(last=False)
        noted = known.setdefault((session, kind), _Note())
        known.move_to_end((session, kind))
        if len(known) > self._notes_max:
            known.popitem(last=False)
        return noted

    def tells(self, tenant: str, session: str, kind: str) -> bool:
        return (session, kind) in self._tenants.get(tenant, ())

    def note_root(self, tenant: str, trace_id: str, session: str) -> bool:
        """Note the session that a trace's root names. Whether others of the trace are elsewhere."""
        noted = self.note(tenant, trace_id, TRACE)
        noted.of_root = session
        return noted.of_others not in (None, session)

    def session_of(self, tenant: str, trace_id: str) -> str:
        """The session of what names none: the one of its trace's root, else the trace."""
        noted = self.note(tenant, trace_id, TRACE)
        noted.of_others = noted.of_others or noted.of_root or trace_id
        return noted.of_others


#: Limits of waiting records and their content per batch, to bound memory.
WAITING_MAX = 10_000
WAITING_CHARS_MAX = 4 * 1024 * 1024


class LogReading(Struct):
    place: int
    record: LogRecord
    origin: Origin
    owner: Owner
    told: RecordReading


class LogBatch:
    def __init__(self, tenant: str, notes: SessionNotes) -> None:
        self._tenant = tenant
        self._notes = notes
        self._waiting: list[LogReading] = []
        self._waiting_chars = 0

    def take(self, place: int, record: LogRecord, origin: Origin) -> list[LogReading] | None:
        """Take a record; returns what can be reported now, or None if it is not from an agent."""
        found = (dialect.read_log(record, origin) for dialect in _DIALECTS)
        told = next((each for each in found if each is not None), None)
        if told is None or told.reading is None:
            return None
        session = session_of(record.attributes, origin)
        if session is None and record.trace_id:
            session = self._notes.session_of(self._tenant, record.trace_id)
        if session is None:
            return None
        owner = owner_of(record.attributes, origin, session)
        if told.full is not None:
            self._notes.note(self._tenant, owner.session_id, told.full)
        known = LogReading(place, record, origin, owner, told)
        if not told.waits:
            return [known]
        self._waiting.append(known)
        self._waiting_chars += chars_in(record.attributes)
        is_full = len(self._waiting) >= WAITING_MAX or self._waiting_chars > WAITING_CHARS_MAX
        return list(self.rest()) if is_full else []

    def rest(self) -> Iterator[LogReading]:
        waiting, self._waiting, self._waiting_chars = self._waiting, [], 0
        _merge(waiting)
        for known in waiting:
            told, session = known.told, known.owner.session_id
            lesser = told.lesser_than if told.reading is not None else None
            if lesser and self._notes.tells(self._tenant, session, lesser):
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
        elif told.name in ("agent_response", cursor.ANSWER):
            whole = completed.pop(session, None)
        elif told.name in ("sse_event", cursor.USAGE):
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
