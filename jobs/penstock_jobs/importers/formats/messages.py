"""Messages in OpenAI's or Anthropic's form: a conversation per line or document, and logs of calls.

A log of a call repeats earlier messages. Logs of a folder that continue each other are one session,
in which each message appears once. ShareGPT's `conversations` are read too.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import answer_of, message_of, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.model_calls import CallSessions, ExportedCall
from penstock_jobs.importers.penstock_documents import penstock_session
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import rows_of
from penstock_jobs.importers.transcript import SessionDraft

_BEGINS = re.compile(
    rb'"(?:messages|conversations)"\s*:\s*\[\s*\{\s*"(?:role|content|from|value|tool_calls|name)"'
)
#: Marks of other formats that hold messages too.
_OTHERS = re.compile(
    rb'"(?:mini_version|trajectory_format|messageId|modelInfo|tool_call_ids|message_type)"\s*:'
    rb'|^\s*\{[^{}\[]{,2000}"id"\s*:\s*"T-'
)
_SHARE_GPT = {"human": "user", "gpt": "assistant", "system": "system", "tool": "tool",
              "user": "user", "assistant": "assistant", "observation": "tool"}  # fmt: skip
#: Marks of tracers' documents, which also hold messages.
_TRACED = re.compile(
    rb'"(?:episode_id|parentObservationId|parent_observation_id|mlflow\.traceRequestId'
    rb'|span_kind)"\s*:'
)
_TAKEN = ("messages", "conversations", "tools", "response", "raw_messages", "raw_response",
          "raw_completion")  # fmt: skip


class MessagesImporter(Importer):
    name = "messages"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return _holds_logs(candidate)
        begins = candidate.beginning
        if _OTHERS.search(begins) or _TRACED.search(begins):
            return False
        if candidate.is_lines:
            return all(_messages_of(row) is not None for row in candidate.first_rows[:3])
        return bool(_BEGINS.search(begins[:8192]))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        logs = CallSessions(self.name, notes)
        if source.is_folder:
            files = [file for file in source.files() if file.name.endswith(".json")]
            for file in sorted(files, key=lambda each: each.name):
                row = file.json_object_or_skip(notes, "log")
                if row is not None and _is_log(row):
                    yield from logs.take(_call(row, file))
                elif row is not None:
                    notes.skip("file that is not a log of a call", file.name)
            return
        for where, row in rows_of(source, notes):
            messages = _messages_of(row)
            if messages is None:
                notes.skip("line without messages", where)
            elif _is_log(row):
                yield from logs.take(_call(row, source))
            elif (own := penstock_session(row)) is not None:
                yield from own
            else:
                yield from _conversation(row, messages, source, notes)


def _messages_of(row: Row) -> list[dict[str, Any]] | None:
    messages = row.get("messages")
    if isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages):
        return messages
    told = row.get("conversations")
    if isinstance(told, list) and all(isinstance(m, dict) and "from" in m for m in told):
        return [
            {"role": _SHARE_GPT.get(m["from"], "user"), "content": m.get("value")} for m in told
        ]
    return None


def _is_log(row: Row) -> bool:
    return bool(fields.mapping(row, "response").keys() & {"choices", "content"})


def _holds_logs(folder: Candidate) -> bool:
    """Whether a folder holds logs of calls, judging by the first and the last file."""
    names = sorted(folder.entries)
    if len(names) < 2 or not all(name.endswith(".json") for name in names):
        return False
    return all(_is_whole_log(folder, name) for name in (names[0], names[-1]))


def _is_whole_log(folder: Candidate, name: str) -> bool:
    file = Candidate(folder.path / name, folder.folder, (*folder.names, name))
    if not _BEGINS.search(file.beginning[:8192]):
        return False
    try:
        row = file.json_object()
    except SourceUnfit:
        return False
    return _messages_of(row) is not None and _is_log(row)


def _conversation(
    row: Row, messages: Sequence[Row], source: Source, notes: Notes
) -> list[ImportedEvent]:
    name = row.get("session_id") or row.get("conversation_id")
    given = row.get("id") or row.get("instance_id") or "messages"
    session = str(name) if name else f"{given}-{digest_of(row)[:16]}"
    began = source.time_us(row.get("timestamp") or row.get("created_at"))
    draft = SessionDraft(session, "messages", began, notes)
    rest = fields.without(row, *_TAKEN, "system")
    draft.start = {"tools": row.get("tools") or None, "extra": rest or None}
    draft.model = fields.text(row, "model")
    if system := text_of(row.get("system")):
        draft.add_system_prompt(system, "system")
    for at, message in enumerate(messages):
        draft.at(message.get("timestamp"))
        draft.add_message(message, f"message-{at}")
    return draft.finished()


def _call(row: Row, source: Source) -> ExportedCall:
    told = row.get("raw_messages") or _messages_of(row) or []
    response, seconds = row["response"], row.get("latency_sec")
    rest = fields.without(row, *_TAKEN, "timestamp", "latency_sec")
    facts = {
        "model": response.get("model"),
        "usage": usage_of(response.get("usage")),
        "latency_ms": seconds * 1000 if isinstance(seconds, int | float) else None,
        "request": rest or None,
        "call_id": response.get("id"),
    }
    return ExportedCall(
        id=response,
        began_us=source.time_us(row.get("timestamp")),
        messages=[message_of(message) for message in told if isinstance(message, dict)],
        answer=answer_of(response),
        tools=row.get("tools"),
        facts=facts,
    )
