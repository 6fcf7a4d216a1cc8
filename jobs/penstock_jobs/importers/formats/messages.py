"""Messages in OpenAI's or Anthropic's form: a conversation a line or document, and logs of calls.

A log of a call repeats what was said before: the logs of a folder that go on from each other are
one session, and each message is taken once. ShareGPT's `conversations` are read too.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import answer_of, message_of, text_of, usage_of
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.model_calls import CallSessions, ExportedCall
from penstock_jobs.importers.penstock_documents import own_session
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, digest_of, moment_us

_BEGINS = re.compile(
    rb'"(?:messages|conversations)"\s*:\s*\[\s*\{\s*"(?:role|content|from|value|tool_calls|name)"'
)
_LOGGED = re.compile(rb'"response"\s*:\s*\{')
#: Other formats' documents that hold messages too.
_OTHERS = (".traj.json", ".messages.json", ".traj")
_SHARE_GPT = {"human": "user", "gpt": "assistant", "system": "system", "tool": "tool",
              "user": "user", "assistant": "assistant", "observation": "tool"}  # fmt: skip
#: Documents of those who trace calls, in which messages stand deeper.
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
        if candidate.name.endswith(_OTHERS) or not candidate.name.endswith((".json", ".jsonl")):
            return False
        if candidate.name.endswith(".jsonl") and candidate.first_rows:
            return all(_messages_of(row) is not None for row in candidate.first_rows[:3])
        begins = candidate.beginning
        return bool(_BEGINS.search(begins[:8192])) and not _TRACED.search(begins)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        logs = CallSessions(self.name)
        if source.is_folder:
            files = [file for file in source.files() if file.name.endswith(".json")]
            for file in sorted(files, key=lambda each: each.name):
                try:
                    row = file.document()
                except SourceUnfit as error:
                    notes.skip("log that cannot be read", f"{file.name}: {error}")
                    continue
                if isinstance(row, dict) and _is_log(row):
                    yield from logs.take(_call(row, file))
                else:
                    notes.skip("file that is no log of a call", file.name)
            return
        for number, row in _rows(source, notes):
            messages = _messages_of(row)
            if messages is None:
                notes.skip("line without messages", f"line {number}")
            elif _is_log(row):
                yield from logs.take(_call(row, source))
            elif (own := own_session(row)) is not None:
                yield from own
            else:
                yield from _conversation(row, messages, source)


def _rows(source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    if source.plain_name.endswith(".jsonl"):
        yield from source.rows(notes)
        return
    document = source.document()
    for at, row in enumerate(document if isinstance(document, list) else [document]):
        if isinstance(row, dict):
            yield at + 1, row
        else:
            notes.skip("conversation that is no object", str(at + 1))


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
    response = row.get("response")
    return isinstance(response, dict) and ("choices" in response or "content" in response)


def _holds_logs(folder: Candidate) -> bool:
    """Whether all in a folder are logs of calls; the first and the last are looked at."""
    names = sorted(folder.entries)
    if len(names) < 2 or not all(name.endswith(".json") for name in names):
        return False
    for name in (names[0], names[-1]):
        file = Candidate(folder.path / name, folder.root, (*folder.names, name))
        begins = file.beginning
        if not _BEGINS.search(begins[:8192]) or not _is_whole_log(file):
            return False
    return True


def _is_whole_log(file: Candidate) -> bool:
    try:
        row = file.source().document()
    except SourceUnfit:
        return False
    return isinstance(row, dict) and _messages_of(row) is not None and _is_log(row)


def _conversation(row: Row, messages: Sequence[Row], source: Source) -> list[ImportedEvent]:
    name = row.get("session_id") or row.get("conversation_id")
    given = row.get("id") or row.get("instance_id") or "messages"
    rest = {key: value for key, value in row.items() if key not in _TAKEN and key != "system"}
    draft = SessionDraft(
        str(name) if name else f"{given}-{digest_of(row)[:16]}",
        "messages",
        moment_us(row.get("timestamp") or row.get("created_at")) or source.changed_us(),
    )
    draft.start = {"tools": row.get("tools") or None, "extra": rest or None}
    model = row.get("model")
    draft.model = model if isinstance(model, str) else None
    if system := text_of(row.get("system")):
        draft.instructed(system, "system")
    for at, message in enumerate(messages):
        draft.told(message, f"message-{at}", moment_us(message.get("timestamp")))
    return draft.finished()


def _call(row: Row, source: Source) -> ExportedCall:
    told = row.get("raw_messages") or _messages_of(row) or []
    response, seconds = row["response"], row.get("latency_sec")
    rest = {name: row[name] for name in row.keys() - {*_TAKEN, "timestamp", "latency_sec"}}
    facts = {
        "model": response.get("model"),
        "usage": usage_of(response.get("usage")),
        "latency_ms": seconds * 1000 if isinstance(seconds, int | float) else None,
        "request": rest or None,
        "call_id": response.get("id"),
    }
    return ExportedCall(
        id=response,
        began_us=moment_us(row.get("timestamp")) or source.changed_us(),
        messages=[message_of(message) for message in told if isinstance(message, dict)],
        answer=answer_of(response),
        tools=row.get("tools"),
        facts=facts,
    )


IMPORTERS = (MessagesImporter(),)
