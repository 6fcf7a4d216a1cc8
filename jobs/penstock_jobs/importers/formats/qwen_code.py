"""Qwen Code: chats of a JSON object a line, with messages as Gemini has them, linked by parents.

What a call of the model took is told in a record of its own before the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_jobs.importers import fields
from penstock_jobs.importers.formats.gemini import function_output, parts_text
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.session_draft import SessionDraft, moment_us, present, usage_of
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import ImportedTranscript

_KEYS = {"uuid", "sessionId", "type", "timestamp"}
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
            yield from chat.events()


def _is_record(row: Mapping[str, Any]) -> bool:
    if not row.keys() >= _KEYS:
        return False
    parts = isinstance(fields.mapping(row, "message").get("parts"), list)
    return parts or "systemPayload" in row


class _QwenChat:
    def __init__(
        self, session: str, record: Mapping[str, Any], source: Source, notes: Notes
    ) -> None:
        self._notes = notes
        clock_us = moment_us(record.get("timestamp")) or source.changed_us()
        draft = SessionDraft(session, "qwen-code", clock_us)
        draft.project = fields.text(record, "cwd")
        draft.start = {
            "client": "qwen-code",
            "client_version": record.get("version"),
            "branch": record.get("gitBranch"),
        }
        self._draft, self._transcript = draft, ImportedTranscript(draft)
        #: Of the call whose answer comes next.
        self._telemetry: Mapping[str, Any] = {}

    def events(self) -> list[ImportedEvent]:
        return self._draft.finished()

    def take(self, record: Mapping[str, Any], number: int) -> None:
        key, kind = str(record.get("uuid") or f"line-{number}"), record.get("type")
        ts_us = moment_us(record.get("timestamp"))
        message = fields.mapping(record, "message")
        parts = fields.rows(message, "parts")
        if kind == "user":
            facts = {} if record.get("provenance") in _BY_PEOPLE else {"synthetic": True}
            self._transcript.asked(parts_text(parts), key, ts_us, **facts)
        elif kind == "assistant":
            self._take_answer(record, parts, key, ts_us)
        elif kind == "tool_result":
            self._take_results(record, parts, key, ts_us)
        elif kind == "system":
            self._take_system(record, key, ts_us)
        else:
            self._notes.skip(f"record of the unknown type {kind}", f"line {number}")

    def _take_answer(
        self,
        record: Mapping[str, Any],
        parts: Sequence[Mapping[str, Any]],
        key: str,
        ts_us: int | None,
    ) -> None:
        thoughts = [str(part.get("text") or "") for part in parts if part.get("thought")]
        functions = [
            part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)
        ]
        calls = [
            present(
                {
                    "id": str(call.get("id") or f"{key}:call:{at}"),
                    "name": str(call.get("name") or "unknown"),
                    "arguments": call.get("args"),
                }
            )
            for at, call in enumerate(functions)
        ]
        told, self._telemetry = self._telemetry, {}
        said = {
            "text": parts_text(parts) or None,
            "thinking": "\n".join(thoughts) or None,
            "model": record.get("model") or told.get("model"),
            "usage": _usage(record.get("usageMetadata")) or _usage_told(told),
            "latency_ms": told.get("duration_ms"),
            "ttft_ms": told.get("ttft_ms"),
        }
        self._transcript.answered(key, ts_us, tool_calls=calls, **present(said))

    def _take_results(
        self,
        record: Mapping[str, Any],
        parts: Sequence[Mapping[str, Any]],
        key: str,
        ts_us: int | None,
    ) -> None:
        result = fields.mapping(record, "toolCallResult")
        status = result.get("status")
        for at, part in enumerate(parts):
            response = part.get("functionResponse")
            if not isinstance(response, dict):
                continue
            facts = {
                "tool": response.get("name"),
                "ok": None if status is None else status == "success",
                "error_class": "user_aborted" if status == "cancelled" else None,
                "error_type": result.get("errorType"),
            }
            name = f"{key}:{at}" if at else key
            call_id = response.get("id") or result.get("callId")
            self._transcript.returned(call_id, function_output(part), name, ts_us, **present(facts))

    def _take_system(self, record: Mapping[str, Any], key: str, ts_us: int | None) -> None:
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
            self._draft.add("compaction", facts, key, ts_us)
        elif event.get("event.name") == "qwen-code.api_error":
            told = {"message": str(event.get("error")), "error_class": event.get("error_type")}
            self._draft.add("error", told, key, ts_us)
        else:
            name = event.get("event.name") or subtype
            self._notes.skip(f"record of the client itself: {name}", key)


def _usage(metadata: object) -> dict[str, Any] | None:
    if not isinstance(metadata, dict):
        return None
    return usage_of(
        {
            "prompt": metadata.get("promptTokenCount"),
            "completion": metadata.get("candidatesTokenCount"),
            "thinking": metadata.get("thoughtsTokenCount"),
            "cached": metadata.get("cachedContentTokenCount"),
        }
    )


def _usage_told(event: Mapping[str, Any]) -> dict[str, Any] | None:
    return usage_of(
        {
            "prompt": event.get("input_token_count"),
            "completion": event.get("output_token_count"),
            "thinking": event.get("thoughts_token_count"),
            "cached": event.get("cached_content_token_count"),
        }
    )


IMPORTER = QwenCodeImporter()
