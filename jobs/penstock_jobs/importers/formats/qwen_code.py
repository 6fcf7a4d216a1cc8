"""Qwen Code: chats of a JSON object a line, with messages as Gemini has them, linked by parents.

What a call of the model took is told in a record of its own before the answer.
"""

from collections.abc import Iterator, Sequence

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.formats.gemini import function_output, parts_text
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, moment_us, tool_call

_KEYS = {"uuid", "sessionId", "type", "timestamp"}
#: Tokens as an answer has them, and the telemetry before it.
_COUNTED = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount",
            "cachedContentTokenCount")  # fmt: skip
_TOLD = ("input_token_count", "output_token_count", "thoughts_token_count",
         "cached_content_token_count")  # fmt: skip
_BY_PEOPLE = (None, "real_user")


class QwenCodeImporter(Importer):
    name = "qwen-code"
    homes = ("~/.qwen/projects", "~/.qwen/tmp")

    def recognises(self, candidate: Candidate) -> bool:
        return candidate.name.endswith(".jsonl") and any(map(_is_record, candidate.first_rows))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        chats: dict[str, _QwenChat] = {}
        for number, record in source.rows(notes):
            session = record.get("sessionId")
            if not isinstance(session, str):
                notes.skip("record without a session", f"line {number}")
                continue
            chat = chats.get(session) or _QwenChat(session, record, source, notes)
            chats[session] = chat
            chat.take(record, number)
        for chat in chats.values():
            yield from chat.finished()


def _is_record(row: Row) -> bool:
    if not row.keys() >= _KEYS:
        return False
    parts = isinstance(fields.mapping(row, "message").get("parts"), list)
    return parts or "systemPayload" in row


class _QwenChat(SessionDraft):
    def __init__(self, session: str, record: Row, source: Source, notes: Notes) -> None:
        self._notes = notes
        clock_us = moment_us(record.get("timestamp")) or source.changed_us()
        super().__init__(session, "qwen-code", clock_us, fields.text(record, "cwd"))
        self.start = {
            "client": "qwen-code",
            "client_version": record.get("version"),
            "branch": record.get("gitBranch"),
        }
        #: Of the call whose answer comes next.
        self._telemetry: Row = {}

    def take(self, record: Row, number: int) -> None:
        key, kind = str(record.get("uuid") or f"line-{number}"), record.get("type")
        ts_us = moment_us(record.get("timestamp"))
        message = fields.mapping(record, "message")
        parts = fields.rows(message, "parts")
        if kind == "user":
            facts = {} if record.get("provenance") in _BY_PEOPLE else {"synthetic": True}
            self.asked(parts_text(parts), key, ts_us, **facts)
        elif kind == "assistant":
            self._take_answer(record, parts, key, ts_us)
        elif kind == "tool_result":
            self._take_results(record, parts, key, ts_us)
        elif kind == "system":
            self._take_system(record, key, ts_us)
        else:
            self._notes.skip(f"record of the unknown type {kind}", f"line {number}")

    def _take_answer(self, record: Row, parts: Sequence[Row], key: str, ts_us: int | None) -> None:
        thoughts = [str(part.get("text") or "") for part in parts if part.get("thought")]
        functions = filter(None, (fields.mapping(part, "functionCall") for part in parts))
        calls = [tool_call(call.get("id"), call.get("name"), call.get("args"))
                 for call in functions]  # fmt: skip
        told, self._telemetry = self._telemetry, {}
        self.answered(
            key,
            ts_us,
            tool_calls=calls,
            text=parts_text(parts) or None,
            thinking="\n".join(thoughts) or None,
            model=record.get("model") or told.get("model"),
            usage=_usage(record.get("usageMetadata"), *_COUNTED) or _usage(told, *_TOLD),
            latency_ms=told.get("duration_ms"),
            ttft_ms=told.get("ttft_ms"),
        )

    def _take_results(self, record: Row, parts: Sequence[Row], key: str, ts_us: int | None) -> None:
        result = fields.mapping(record, "toolCallResult")
        status = result.get("status")
        for at, part in enumerate(parts):
            response = part.get("functionResponse")
            if not isinstance(response, dict):
                continue
            self.returned(
                response.get("id") or result.get("callId"),
                function_output(part),
                f"{key}:{at}" if at else key,
                ts_us,
                tool=response.get("name"),
                ok=None if status is None else status == "success",
                error_class="user_aborted" if status == "cancelled" else None,
                error_type=result.get("errorType"),
            )

    def _take_system(self, record: Row, key: str, ts_us: int | None) -> None:
        subtype, payload = record.get("subtype"), fields.mapping(record, "systemPayload")
        event = fields.mapping(payload, "uiEvent")
        if event.get("event.name") == "qwen-code.api_response":
            self._telemetry = event
        elif subtype == "chat_compression":
            info = fields.mapping(payload, "info")
            facts = {
                "trigger": "auto",
                "tokens_before": fields.count(info, "originalTokenCount"),
                "tokens_after": fields.count(info, "newTokenCount"),
            }
            self.add("compaction", facts, key, ts_us)
        elif event.get("event.name") == "qwen-code.api_error":
            told = {"message": str(event.get("error")), "error_class": event.get("error_type")}
            self.add("error", told, key, ts_us)
        else:
            name = event.get("event.name") or subtype
            self._notes.skip(f"record of the client itself: {name}", key)


def _usage(told: object, *names: str) -> dict[str, int] | None:
    held = told if isinstance(told, dict) else {}
    known = ("prompt", "completion", "thinking", "cached")
    return usage_of({name: held.get(own) for name, own in zip(known, names, strict=True)})


IMPORTER = QwenCodeImporter()
