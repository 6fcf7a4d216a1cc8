"""The log records of one request. Some wait for its end, because another record of the batch may
tell the same more fully."""

from collections import OrderedDict
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from msgspec import Struct

from penstock.otlp.attributes import present
from penstock.otlp.dialects import claude_code, codex, genai
from penstock.otlp.events import (
    EventReading,
    ModelCallReading,
    Owner,
    Reading,
    ToolReading,
    owner_of,
)
from penstock.otlp.records import LogRecord, Origin

_TENANTS_MAX = 1_000


class FullSessions:
    """The newest sessions of each tenant alone: memory is bounded, and no tenant has another's
    forgotten. A session that is, or whose records come by another process, has its lesser records
    counted as well until a fuller one comes."""

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

    def tells(self, tenant: str, session: str, *kinds: str) -> bool:
        known = self._tenants.get(tenant)
        return known is not None and any((session, kind) in known for kind in kinds)


#: So many records of a batch wait at most, and so much of what they say, to bound memory.
_WAITING_MAX = 10_000
_WAITING_CHARS_MAX = 4 * 1024 * 1024


class LogReading(Struct):
    """A record of an agent, read. Without a reading, another record of the batch tells it."""

    place: int
    record: LogRecord
    origin: Origin
    owner: Owner
    reading: Reading | None
    key: str | None = None
    name: str = ""
    dialect: ModuleType | None = None


class LogBatch:
    def __init__(self, tenant: str, full_sessions: FullSessions) -> None:
        self._tenant = tenant
        self._full = full_sessions
        self._waiting: list[LogReading] = []
        self._waiting_chars = 0

    def take(self, place: int, record: LogRecord, origin: Origin) -> list[LogReading] | None:
        """What can be told now; None for a record of no agent."""
        owner = owner_of(record.attributes, origin, record.trace_id)
        if owner is None:
            return None
        known = LogReading(place, record, origin, owner, None)
        if (name := claude_code.event_name(record, origin)) is not None:
            return self._of_claude_code(known, name)
        if (name := codex.event_name(record)) is not None:
            return self._of_codex(known, name)
        known.reading = genai.read_record(record)
        known.key = genai.record_key(record, origin)
        return None if known.reading is None else [known]

    def rest(self) -> Iterator[LogReading]:
        """What waited, once all of the batch is known."""
        waiting, self._waiting, self._waiting_chars = self._waiting, [], 0
        _merge(waiting)
        for known in waiting:
            if known.reading is not None and self._is_lesser(known):
                known.reading, known.key = _as_lesser(known), None
            yield known

    def _of_claude_code(self, known: LogReading, name: str) -> list[LogReading] | None:
        record = known.record
        known.name, known.dialect = name, claude_code
        known.reading = claude_code.read_record(name, record)
        if known.reading is None:
            return None
        if not (name == "api_response_body" and isinstance(known.reading, EventReading)):
            known.key = claude_code.record_key(name, record)  # one that was cut is no call
        kind = claude_code.full_kind(name, known.reading)
        if kind is not None:
            self._full.note(self._tenant, known.owner.session_id, kind)
        return self._now_or_later(known, waits=claude_code.waits(name))

    def _of_codex(self, known: LogReading, name: str) -> list[LogReading] | None:
        known.name, known.dialect = name, codex
        known.reading = codex.read_record(name, known.record)
        if known.reading is None:
            return None
        known.key = codex.record_key(name, known.record)
        return self._now_or_later(known, waits=isinstance(known.reading, ModelCallReading))

    def _now_or_later(self, known: LogReading, *, waits: bool) -> list[LogReading]:
        if not waits:
            return [known]
        self._waiting.append(known)
        texts = (value for value in known.record.attributes.values() if isinstance(value, str))
        self._waiting_chars += sum(map(len, texts))
        is_full = len(self._waiting) >= _WAITING_MAX or self._waiting_chars > _WAITING_CHARS_MAX
        return list(self.rest()) if is_full else []

    def _is_lesser(self, known: LogReading) -> bool:
        if known.dialect is not claude_code:
            return False
        kinds = claude_code.lesser_kinds(known.name)
        return self._full.tells(self._tenant, known.owner.session_id, *kinds)


def _merge(waiting: list[LogReading]) -> None:
    """Joins what two records tell of one call: its text and what it cost."""
    asked: dict[tuple[str, str | None], LogReading] = {}
    for known in waiting:
        if known.name == "api_request":
            asked[known.owner.session_id, known.key] = known
    completed: dict[str, LogReading] = {}
    for known in waiting:
        session = known.owner.session_id
        whole: LogReading | None = None
        if known.name in ("assistant_response", "api_response_body") and known.key is not None:
            whole = asked.get((session, known.key))
        elif known.name == "agent_response":
            whole = completed.pop(session, None)
        elif known.name == "sse_event":
            completed[session] = known
        if whole is not None and whole is not known and _add_answer(whole, known):
            known.reading = None
    for known in waiting:
        # The text of a call may come in another batch: it has the call's name.
        if known.name == "api_request" and known.key:
            known.key += ":usage"
        if known.name == "tool_result" and known.dialect is claude_code and known.key:
            known.key += ":run"


def _add_answer(whole: LogReading, known: LogReading) -> bool:
    call, answer = whole.reading, known.reading
    if not isinstance(call, ModelCallReading) or not isinstance(answer, ModelCallReading):
        return False
    if whole.name != "api_response_body":
        call.answers = answer.answers
        whole.name = known.name
    call.facts = call.facts | answer.facts
    call.cut += answer.cut
    whole.key = known.key or whole.key
    return True


def _as_lesser(known: LogReading) -> EventReading:
    reading = known.reading
    payload: dict[str, Any] = {}
    if isinstance(reading, ModelCallReading):
        payload = reading.facts | present(
            {"text": reading.answers[0].text if reading.answers else None}
        )
    elif isinstance(reading, ToolReading):
        payload = present({
            "call_id": reading.call_id, "tool": reading.name, "ok": reading.ok,
            "arguments": reading.arguments, "error": reading.error,
        }) | reading.facts  # fmt: skip
    return EventReading(f"x_claude_code_{known.name}", payload)
