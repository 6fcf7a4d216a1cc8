"""Gemini CLI: chats as a log of records since 2026, and one JSON document before.

A record with an `id` is a message, and takes the place of an earlier one of the same id; `$set`
changes facts of the session, all its messages among them; `$rewindTo` takes back that message and
all behind it. What was taken back was said: it is kept, and marked. The project is a hash of its
folder, unless the folder is named.

Qwen Code: messages as Gemini has them, linked by parents. What a call took is told before it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, moment_us, tool_call

_HEAD = {"sessionId", "startTime", "lastUpdated"}
#: How the first message begins that Gemini CLI writes itself.
_CONTEXT = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
_BY_USER = "cancelled"


class GeminiImporter(Importer):
    name = "gemini-cli"
    homes = ("~/.gemini/tmp",)

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.name.endswith(".jsonl"):
            return _is_log(candidate.first_rows)
        begins = candidate.beginning[:4096]
        return candidate.name.endswith(".json") and (
            b'"sessionId"' in begins and b'"projectHash"' in begins and b'"messages"' in begins
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        chat = _Chat(notes)
        if source.plain_name.endswith(".jsonl"):
            for number, record in source.rows(notes):
                chat.take(record, number)
        else:
            document = source.document()
            if not isinstance(document, dict):
                raise SourceUnfit("it is no object")
            chat.take({"$set": document}, 1)
        if not isinstance(chat.facts.get("sessionId"), str):
            raise SourceUnfit("it names no session")
        yield from chat.events(source)


def _is_log(rows: Sequence[Row]) -> bool:
    return bool(rows) and rows[0].keys() >= _HEAD and not rows[0].keys() & {"uuid", "type"}


class _Chat:
    def __init__(self, notes: Notes) -> None:
        self.facts: dict[str, Any] = {}
        self._notes = notes
        self._messages: dict[str, dict[str, Any]] = {}
        #: Messages that were taken back, in their order.
        self._rewound: dict[str, dict[str, Any]] = {}
        #: The messages of each time that the user went back.
        self._rewinds: list[list[str]] = []

    def take(self, record: Row, number: int) -> None:
        if isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("$set"), dict):
            facts = record["$set"]
            if told := {message.get("id") for message in fields.rows(facts, "messages")}:
                for name in [name for name in self._messages if name not in told]:
                    self._rewound[name] = self._messages.pop(name)
            for message in fields.rows(facts, "messages"):
                self._upsert(message)
            self.facts |= fields.without(facts, "messages")
        elif isinstance(record.get("id"), str):
            self._upsert(record)
        elif "sessionId" in record:
            self.facts |= record
        else:
            self._notes.skip("record of an unknown kind", f"line {number}")

    def _upsert(self, message: Row) -> None:
        name = message.get("id")
        if isinstance(name, str):
            self._rewound.pop(name, None)
            self._messages[name] = dict(message)
        else:
            self._notes.skip("message without an id")

    def _rewind(self, name: str) -> None:
        names = list(self._messages)
        taken_back = names[names.index(name) if name in names else 0 :]
        for taken in taken_back:
            self._rewound[taken] = self._messages.pop(taken)
        self._rewinds.append(taken_back)

    def events(self, source: Source) -> list[ImportedEvent]:
        facts = self.facts
        clock_us = moment_us(facts.get("startTime")) or source.changed_us()
        draft = _ChatDraft(facts["sessionId"], "gemini-cli", clock_us)
        directories = [each for each in fields.items(facts, "directories") if isinstance(each, str)]
        draft.project = directories[0] if directories else fields.text(facts, "projectHash")
        is_agent = facts.get("kind") == "subagent" and len(source.names) > 1
        parent = source.names[-2] if is_agent else None
        draft.start = {
            "client": "gemini-cli",
            "parent_session": parent,
            "link": "subagent" if parent else None,
            "summary": facts.get("summary"),
            "project_hash": facts.get("projectHash"),
        }
        said = [(message, False) for message in self._messages.values()]
        said += [(message, True) for message in self._rewound.values()]
        said.sort(key=lambda each: moment_us(each[0].get("timestamp")) or 0)
        undone = {names[-1]: names for names in self._rewinds if names}
        for message, rewound in said:
            draft.take(message, {"rewound": True} if rewound else {})
            if rewound and (names := undone.get(message["id"])):
                self._take_rewind(draft, names)
        return draft.finished()

    def _take_rewind(self, draft: SessionDraft, names: Sequence[str]) -> None:
        messages = [(name, self._rewound.get(name, {}).get("type")) for name in names]
        answers = [name for name, kind in messages if kind == "gemini"]
        prompts = [name for name, kind in messages if kind == "user"]
        if answers or prompts:
            facts = {"kind": "undo", "target": (answers or prompts)[-1]}
            facts |= {"comment": "rewound the conversation"}
            draft.add("feedback", facts, f"{names[0]}:rewind")


class _ChatDraft(SessionDraft):
    def take(self, message: Row, facts: dict[str, Any]) -> None:
        key, kind = str(message["id"]), message.get("type")
        ts_us = moment_us(message.get("timestamp"))
        text = parts_text(message.get("displayContent") or message.get("content"))
        if kind == "user":
            if text.lstrip().startswith(_CONTEXT):
                facts |= {"synthetic": True}
            self.asked(text, key, ts_us, **facts)
        elif kind == "gemini":
            self._take_answer(message, key, ts_us, facts)
        elif kind == "error":
            self.add("error", {"message": text} | facts, key, ts_us)
        else:
            self.add("x_notice", {"text": text, "level": kind} | facts, key, ts_us)

    def _take_answer(
        self, message: Row, key: str, ts_us: int | None, facts: dict[str, Any]
    ) -> None:
        thoughts = [
            f"{thought.get('subject') or ''}: {thought.get('description') or ''}".strip(": ")
            for thought in fields.rows(message, "thoughts")
        ]
        tools = fields.rows(message, "toolCalls")
        calls = [tool_call(tool.get("id"), tool.get("name"), tool.get("args")) for tool in tools]
        said = {
            "text": parts_text(message.get("content")) or None,
            "thinking": "\n".join(thoughts) or None,
            "model": message.get("model"),
            "usage": usage_of(message.get("tokens")),
        }
        self.answered(key, ts_us, tool_calls=calls, **said, **facts)
        for tool, call in zip(tools, calls, strict=True):
            status = tool.get("status")
            if status in ("success", "error", _BY_USER):
                self.returned(
                    call["id"],
                    function_output(tool.get("result")),
                    f"{call['id']}:result",
                    moment_us(tool.get("timestamp")),
                    ok=status == "success",
                    error_class="user_aborted" if status == _BY_USER else None,
                    display=tool.get("resultDisplay"),
                    agent=tool.get("agentId"),
                )


def parts_text(content: object) -> str:
    """The text of parts as Gemini has them, without thoughts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in parts
        if isinstance(part, str) or (isinstance(part, dict) and not part.get("thought"))
    ]
    return "".join(text for text in texts if isinstance(text, str))


def function_output(result: object) -> Any:
    """What functions returned: the text, where there is nothing else."""
    parts = result if isinstance(result, list) else [result]
    outputs = []
    for part in parts:
        response = part.get("functionResponse") if isinstance(part, dict) else None
        told = response.get("response") if isinstance(response, dict) else None
        outputs.append(told if isinstance(told, dict) else part)
    if len(outputs) == 1:
        only = outputs[0]
        if isinstance(only, dict):
            return only.get("output", only.get("error", only))
        return only
    return outputs


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


IMPORTERS = GeminiImporter(), QwenCodeImporter()
