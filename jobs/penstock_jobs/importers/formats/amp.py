"""Amp: `threads/T-ID.json`, a thread as one document, with Anthropic's blocks.

A result stands in the user's next message. It says how the run of the tool ended, also that the
user refused it. The store is kept on a server, so a local copy may lack the end of a thread.
"""

import re
from collections.abc import Iterator

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, usage_beside

_THREAD = re.compile(rb'"id"\s*:\s*"T-')
_MESSAGE = re.compile(rb'"(?:messageId|usageLedger|toolUseID)"\s*:|"messages"\s*:\s*\[\s*\]')
_USAGE = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_REFUSED = "rejected-by-user"


class AmpImporter(Importer):
    name = "amp"
    homes = ("$AMP_DATA_HOME/threads", "~/.local/share/amp/threads")

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning
        return not candidate.is_lines and bool(_THREAD.search(begins) and _MESSAGE.search(begins))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        thread = source.json_object()
        if fields.identifier(thread, "id") is None:
            raise SourceUnfit("it names no thread")
        yield from _Thread(thread, source, notes).events()


class _Thread(SessionDraft):
    def __init__(self, thread: Row, source: Source, notes: Notes) -> None:
        created = source.time_us(thread.get("created"))
        super().__init__(thread["id"], "amp", created, notes)
        self._messages = fields.rows(thread, "messages")
        trees = fields.rows(thread, "env", "initial", "trees")
        folder = next((fields.text(tree, "uri") for tree in trees), None)
        self.project = fields.project_of(folder)
        self.start |= {
            "repo": folder.removeprefix("file://") if folder else None,
            "title": thread.get("title"),
            "relationships": thread.get("relationships") or None,
        }
        ledger = fields.rows(thread, "usageLedger", "events")
        self._ledger = {entry.get("toMessageId"): entry for entry in ledger}

    def events(self) -> list[ImportedEvent]:
        for at, message in enumerate(self._messages):
            name = message.get("messageId", at)
            self.at(fields.at(message, "meta", "sentAt"))
            if message.get("role") == "assistant":
                self._take_answer(message, name)
            else:
                self._take_user(message, f"message-{name}")
        return self.finished()

    def _take_answer(self, message: Row, name: object) -> None:
        usage = fields.mapping(message, "usage")
        entry = self._ledger.get(name, {})
        self.at(usage.get("timestamp") or entry.get("timestamp"))
        tokens = fields.mapping(entry, "tokens")
        self.add_message(
            {"role": "assistant", "content": message.get("content")},
            f"message-{name}",
            model=usage.get("model") or entry.get("model"),
            usage=usage_beside(usage, *_USAGE) or usage_beside(tokens, "input", "output"),
            finish_reason=fields.at(message, "state", "stopReason"),
        )

    def _take_user(self, message: Row, key: str) -> None:
        results = [
            block for block in fields.rows(message, "content") if block.get("type") == "tool_result"
        ]
        for at, block in enumerate(results):
            run, call_id = fields.mapping(block, "run"), fields.text(block, "toolUseID")
            status = run.get("status")
            output = run.get("result", fields.at(run, "error", "message") or run.get("error"))
            self.add_result(
                call_id,
                output if output is not None else block.get("content"),
                f"{key}:result" + (f":{at}" if at else ""),
                ok=status == "done" if status is not None else block.get("is_error") is not True,
                error_class="user_aborted" if status == _REFUSED else None,
            )
            if status == _REFUSED:
                self.add("feedback", {"kind": "reject", "target": call_id}, f"{key}:reject:{at}")
        said = [block for block in fields.items(message, "content") if block not in results]
        if said:
            self.add_message({"role": "user", "content": said}, key)


IMPORTERS = (AmpImporter(),)
