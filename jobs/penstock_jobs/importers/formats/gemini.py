"""Gemini CLI: chats as a log of records since 2026, as one JSON document before.

A record with an `id` is a message, and replaces an earlier one with that id. `$set` changes facts
of the session, including all messages. `$rewindTo` takes back a message and all after it; these are
kept and marked. The project is a hash of its folder, unless the folder is named.

Qwen Code: messages in Gemini's form, linked by parents. The usage of a call comes before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, moment_us
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, tool_call

_HEAD = {"sessionId", "startTime", "lastUpdated"}
_MARKS = (b'"sessionId"', b'"projectHash"', b'"messages"')
_CONTEXT = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
_BY_USER = "cancelled"


class GeminiImporter(Importer):
    name = "gemini-cli"
    homes = ("~/.gemini/tmp",)

    def recognises(self, candidate: Candidate) -> bool:
        head = next(iter(candidate.first_rows), {}).keys()
        if head >= _HEAD and not head & {"uuid", "type"}:
            return True
        return not candidate.is_lines and all(mark in candidate.beginning[:4096] for mark in _MARKS)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        chat = _Chat(notes)
        for number, record in source.records(notes):
            if not isinstance(record, dict):
                raise SourceUnfit("it is not an object")
            chat.take({"$set": record} if "messages" in record else record, number)
        if not isinstance(chat.facts.get("sessionId"), str):
            raise SourceUnfit("it names no session")
        yield from chat.events(source)


@dataclass
class _Chat:
    notes: Notes
    facts: dict[str, Any] = field(default_factory=dict)
    _messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _rewound: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Messages that each rewind took back.
    _rewinds: list[list[str]] = field(default_factory=list)

    def take(self, record: Row, number: int) -> None:
        if isinstance(name := record.get("$rewindTo"), str):
            names = list(self._messages)
            self._rewinds.append(names[names.index(name) if name in names else 0 :])
            self._take_back(self._rewinds[-1])
        elif isinstance(facts := record.get("$set"), dict):
            messages = fields.rows(facts, "messages")
            if told := {message.get("id") for message in messages}:
                self._take_back([name for name in self._messages if name not in told])
            for message in messages:
                self._upsert(message)
            self.facts |= fields.without(facts, "messages")
        elif isinstance(record.get("id"), str):
            self._upsert(record)
        elif "sessionId" in record:
            self.facts |= record
        else:
            self.notes.skip("record of an unknown kind", f"line {number}")

    def _upsert(self, message: Row) -> None:
        name = message.get("id")
        if isinstance(name, str):
            self._rewound.pop(name, None)
            self._messages[name] = dict(message)
        else:
            self.notes.skip("message without an id")

    def _take_back(self, names: Sequence[str]) -> None:
        self._rewound |= {name: self._messages.pop(name) for name in names}

    def events(self, source: Source) -> list[ImportedEvent]:
        facts = self.facts
        clock_us = source.time_us(facts.get("startTime"))
        draft = _ChatDraft(facts["sessionId"], "gemini-cli", clock_us, self.notes)
        directories = [each for each in fields.items(facts, "directories") if isinstance(each, str)]
        draft.project = directories[0] if directories else fields.text(facts, "projectHash")
        is_agent = facts.get("kind") == "subagent" and len(source.names) > 1
        draft.start |= {
            "parent_session": source.parent_name if is_agent else None,
            "link": "subagent" if is_agent else None,
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
        kinds = {name: self._rewound.get(name, {}).get("type") for name in names}
        for wanted in ("gemini", "user"):
            if targets := [name for name, kind in kinds.items() if kind == wanted]:
                comment = {"target": targets[-1], "comment": "rewound the conversation"}
                draft.add("feedback", {"kind": "undo"} | comment, f"{names[0]}:rewind")
                return


class _ChatDraft(SessionDraft):
    def take(self, message: Row, facts: dict[str, Any]) -> None:
        self.at(message.get("timestamp"))
        key, kind = str(message["id"]), message.get("type")
        text = _parts_text(message.get("displayContent") or message.get("content"))
        if kind == "user":
            if text.lstrip().startswith(_CONTEXT):
                facts |= {"synthetic": True}
            self.add_prompt(text, key, **facts)
        elif kind == "gemini":
            self._take_answer(message, key, facts)
        elif kind == "error":
            self.add("error", {"message": text} | facts, key)
        else:
            self.add("x_notice", {"text": text, "level": kind} | facts, key)

    def _take_answer(self, message: Row, key: str, facts: dict[str, Any]) -> None:
        thoughts = [
            f"{thought.get('subject') or ''}: {thought.get('description') or ''}".strip(": ")
            for thought in fields.rows(message, "thoughts")
        ]
        tools = fields.rows(message, "toolCalls")
        calls = [tool_call(tool.get("id"), tool.get("name"), tool.get("args")) for tool in tools]
        self.add_answer(
            key,
            tool_calls=calls,
            text=_parts_text(message.get("content")) or None,
            thinking="\n".join(thoughts) or None,
            model=message.get("model"),
            usage=usage_of(message.get("tokens")),
            **facts,
        )
        for tool, call in zip(tools, calls, strict=True):
            status = tool.get("status")
            if status in ("success", "error", _BY_USER):
                self.at(tool.get("timestamp"))
                self.add_result(
                    call["id"],
                    _function_output(tool.get("result")),
                    f"{call['id']}:result",
                    ok=status == "success",
                    error_class="user_aborted" if status == _BY_USER else None,
                    display=tool.get("resultDisplay"),
                    agent=tool.get("agentId"),
                )


def _parts_text(content: object) -> str:
    """The text of Gemini's parts, without thoughts."""
    parts = content if isinstance(content, list) else [content]
    texts = [
        part.get("text") if isinstance(part, dict) and not part.get("thought") else part
        for part in parts
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _function_output(result: object) -> Any:
    """The results of functions; for a single one its plain output, if it has one."""
    parts = result if isinstance(result, list) else [result]
    told = [(fields.at(part, "functionResponse", "response"), part) for part in parts]
    outputs = [response if isinstance(response, dict) else part for response, part in told]
    if len(outputs) != 1:
        return outputs
    [only] = outputs
    return only.get("output", only.get("error", only)) if isinstance(only, dict) else only


_KEYS = {"uuid", "sessionId", "type", "timestamp"}
#: Names of tokens in an answer, and in the telemetry before it.
_COUNTED = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount",
            "cachedContentTokenCount")  # fmt: skip
_TOLD = ("input_token_count", "output_token_count", "thoughts_token_count",
         "cached_content_token_count")  # fmt: skip
_BY_PEOPLE = (None, "real_user")


class QwenCodeImporter(Importer):
    name = "qwen-code"
    homes = ("~/.qwen/projects", "~/.qwen/tmp")

    def recognises(self, candidate: Candidate) -> bool:
        return any(map(_is_record, candidate.first_rows))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        chats: dict[str, _QwenChat] = {}
        for number, record in source.rows(notes):
            session = record.get("sessionId")
            if not isinstance(session, str):
                notes.skip("record without a session", f"line {number}")
                continue
            if (chat := chats.get(session)) is None:
                began = source.time_us(record.get("timestamp"))
                chat = chats[session] = _QwenChat(session, "qwen-code", began, notes)
                chat.project = fields.text(record, "cwd")
                chat.start["client_version"] = record.get("version")
                chat.start["branch"] = record.get("gitBranch")
            chat.take(record, number)
        for chat in chats.values():
            yield from chat.finished()


def _is_record(row: Row) -> bool:
    parts = isinstance(fields.at(row, "message", "parts"), list)
    return row.keys() >= _KEYS and (parts or "systemPayload" in row)


class _QwenChat(SessionDraft):
    #: Telemetry of the next answer.
    _telemetry: Row | None = None

    def take(self, record: Row, number: int) -> None:
        key, kind = str(record.get("uuid") or f"line-{number}"), record.get("type")
        self.at(record.get("timestamp"))
        parts = fields.rows(record, "message", "parts")
        if kind == "user":
            synthetic = None if record.get("provenance") in _BY_PEOPLE else True
            self.add_prompt(_parts_text(parts), key, synthetic=synthetic)
        elif kind == "assistant":
            self._take_answer(record, parts, key)
        elif kind == "tool_result":
            self._take_results(record, parts, key)
        elif kind == "system":
            self._take_system(record, key)
        else:
            self.notes.skip(f"record of the unknown type {kind}", f"line {number}")

    def _take_answer(self, record: Row, parts: Sequence[Row], key: str) -> None:
        thoughts = [str(part.get("text") or "") for part in parts if part.get("thought")]
        functions = filter(None, (fields.mapping(part, "functionCall") for part in parts))
        calls = [tool_call(call.get("id"), call.get("name"), call.get("args"))
                 for call in functions]  # fmt: skip
        told, self._telemetry = self._telemetry or {}, None
        self.add_answer(
            key,
            tool_calls=calls,
            text=_parts_text(parts) or None,
            thinking="\n".join(thoughts) or None,
            model=record.get("model") or told.get("model"),
            usage=_usage(record.get("usageMetadata"), *_COUNTED) or _usage(told, *_TOLD),
            latency_ms=told.get("duration_ms"),
            ttft_ms=told.get("ttft_ms"),
        )

    def _take_results(self, record: Row, parts: Sequence[Row], key: str) -> None:
        result = fields.mapping(record, "toolCallResult")
        status = result.get("status")
        for at, part in enumerate(parts):
            response = part.get("functionResponse")
            if not isinstance(response, dict):
                continue
            self.add_result(
                response.get("id") or result.get("callId"),
                _function_output(part),
                f"{key}:{at}" if at else key,
                tool=response.get("name"),
                ok=None if status is None else status == "success",
                error_class="user_aborted" if status == _BY_USER else None,
                error_type=result.get("errorType"),
            )

    def _take_system(self, record: Row, key: str) -> None:
        event = fields.mapping(record, "systemPayload", "uiEvent")
        name = event.get("event.name") or record.get("subtype")
        if name == "qwen-code.api_response":
            self._telemetry = event
        elif name == "chat_compression":
            info = fields.mapping(record, "systemPayload", "info")
            facts = {
                "trigger": "auto",
                "tokens_before": fields.count(info, "originalTokenCount"),
                "tokens_after": fields.count(info, "newTokenCount"),
            }
            self.add("compaction", facts, key)
        elif name == "qwen-code.api_error":
            told = {"message": str(event.get("error")), "error_class": event.get("error_type")}
            self.add("error", told, key)
        else:
            self.notes.skip(f"record of the client itself: {name}", key)


def _usage(told: object, *names: str) -> dict[str, int] | None:
    known = ("prompt", "completion", "thinking", "cached")
    return usage_of({each: fields.at(told, own) for each, own in zip(known, names, strict=True)})
