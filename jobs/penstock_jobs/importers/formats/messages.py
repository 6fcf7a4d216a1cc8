"""Messages in OpenAI's or Anthropic's form: a conversation a line or document, and logs of calls.

A log of a call repeats what was said before: the logs of a folder that go on from each other are
one session, and each message is taken once. ShareGPT's `conversations` are read too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.penstock_documents import own_session
from penstock_jobs.importers.report import Notes, Unfit
from penstock_jobs.importers.session_draft import (
    SessionDraft,
    digest_of,
    moment_us,
    present,
    usage_of,
)
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import Transcript, json_of, text_of, tool_calls_of

_BEGINS = re.compile(
    rb'"(?:messages|conversations)"\s*:\s*\[\s*\{\s*"(?:role|content|from|value|tool_calls|name)"'
)
_LOGGED = re.compile(rb'"response"\s*:\s*\{')
#: Other formats' documents that hold messages too.
_OTHERS = (".traj.json", ".messages.json", ".traj")
_SHARE_GPT = {"human": "user", "gpt": "assistant", "system": "system", "tool": "tool",
              "user": "user", "assistant": "assistant", "observation": "tool"}  # fmt: skip
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
        return bool(_BEGINS.search(candidate.beginning[:8192]))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        logs = _CallLogs(notes)
        if source.is_folder:
            files = [file for file in source.files() if file.name.endswith(".json")]
            for file in sorted(files, key=lambda each: each.name):
                try:
                    row = file.document()
                except Unfit as error:
                    notes.skip("log that cannot be read", f"{file.name}: {error}")
                    continue
                if isinstance(row, dict) and _is_log(row):
                    yield from logs.take(row, file)
                else:
                    notes.skip("file that is no log of a call", file.name)
            return
        for number, row in _rows(source, notes):
            messages = _messages_of(row)
            if messages is None:
                notes.skip("line without messages", f"line {number}")
            elif _is_log(row):
                yield from logs.take(row, source)
            elif (own := own_session(row)) is not None:
                yield from own
            else:
                yield from _conversation(row, messages, source)


def _rows(source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    if source.name.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl"):
        yield from source.rows(notes)
        return
    document = source.document()
    for at, row in enumerate(document if isinstance(document, list) else [document]):
        if isinstance(row, dict):
            yield at + 1, row
        else:
            notes.skip("conversation that is no object", str(at + 1))


def _messages_of(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    messages = row.get("messages")
    if isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages):
        return messages
    told = row.get("conversations")
    if isinstance(told, list) and all(isinstance(m, dict) and "from" in m for m in told):
        return [
            {"role": _SHARE_GPT.get(m["from"], "user"), "content": m.get("value")} for m in told
        ]
    return None


def _is_log(row: Mapping[str, Any]) -> bool:
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
    except Unfit:
        return False
    return isinstance(row, dict) and _messages_of(row) is not None and _is_log(row)


def _conversation(
    row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], source: Source
) -> list[ImportedEvent]:
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
    transcript = Transcript(draft, model=model if isinstance(model, str) else None)
    if system := text_of(row.get("system")):
        transcript.instructed(system, "system")
    for at, message in enumerate(messages):
        transcript.take(message, f"message-{at}", moment_us(message.get("timestamp")))
    return draft.finished()


class _CallLogs:
    """Logs that come in the order of their calls, as far as their names tell it."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        #: The sessions whose last message ends this chain of messages.
        self._sessions: dict[str, _LoggedSession] = {}

    def take(self, row: Mapping[str, Any], source: Source) -> Iterator[ImportedEvent]:
        told = row.get("raw_messages") or _messages_of(row) or []
        messages = [message for message in told if isinstance(message, dict)]
        chains = list(_chains(messages))
        known = next(
            (at for at in reversed(range(len(chains))) if chains[at] in self._sessions), -1
        )
        response = row["response"]
        if known >= 0:
            session = self._sessions[chains[known]]
        else:
            session = _LoggedSession(row, f"calls-{digest_of(chains[-1:], response)[:16]}", source)
        sent = len(session.draft.events)
        session.take(messages[known + 1 :], chains[known + 1 :], row)
        answer = _answer_of(response)
        end = _chain(chains[-1] if chains else "", answer)
        session.answer(answer, end, row)
        self._sessions[end] = session
        events = session.draft.finished()
        yield from events[sent + 1 if sent else 0 :]


class _LoggedSession:
    def __init__(self, row: Mapping[str, Any], name: str, source: Source) -> None:
        clock_us = moment_us(row.get("timestamp")) or source.changed_us()
        self.draft = SessionDraft(name, "messages", clock_us)
        self.draft.start = {"tools": row.get("tools") or None}
        self._transcript = Transcript(self.draft)

    def take(
        self,
        messages: Sequence[Mapping[str, Any]],
        chains: Sequence[str],
        row: Mapping[str, Any],
    ) -> None:
        """What was said since the last call; answers among it were given before the logs begin."""
        ts_us = moment_us(row.get("timestamp"))
        for message, chain in zip(messages, chains, strict=True):
            copied = message.get("role") == "assistant"
            facts = {"is_copied_context": True} if copied else {}
            self._transcript.take(message, chain, ts_us, **facts)

    def answer(self, answer: Mapping[str, Any], key: str, row: Mapping[str, Any]) -> None:
        response, seconds = row["response"], row.get("latency_sec")
        rest = {name: row[name] for name in row.keys() - {*_TAKEN, "timestamp", "latency_sec"}}
        facts = {
            "model": response.get("model"),
            "usage": usage_of(response.get("usage")),
            "latency_ms": seconds * 1000 if isinstance(seconds, int | float) else None,
            "request": rest or None,
        }
        call_id = response.get("id")
        self._transcript.take_answer(answer, key, **present(facts | {"call_id": call_id}))


def _answer_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a response of either form."""
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        message = message if isinstance(message, dict) else {}
        return {"role": "assistant", "finish_reason": choices[0].get("finish_reason")} | message
    facts = {name: response.get(name) for name in ("content", "stop_reason")}
    return {"role": "assistant"} | present(facts)


def _chains(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    chain = ""
    for message in messages:
        chain = _chain(chain, message)
        yield chain


def _chain(before: str, message: Mapping[str, Any]) -> str:
    """What was said, whatever the form that it is repeated in."""
    calls = [(call["name"], json_of(call.get("arguments"))) for call in tool_calls_of(message, "")]
    content = message.get("content")
    text = text_of(content).strip() or (None if isinstance(content, str | None) else content)
    if message.get("role") == "assistant":
        text = text_of(content).strip()
    return digest_of(before, message.get("role"), text, calls, message.get("tool_call_id"))


IMPORTER = MessagesImporter()
