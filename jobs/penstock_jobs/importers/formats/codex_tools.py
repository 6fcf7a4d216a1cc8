"""Codex's tools: what a call asked, how it ended, and the patches that it applied."""

import re
from collections.abc import Iterator
from contextlib import suppress
from posixpath import isabs, join
from typing import Any, NamedTuple

from msgspec import Struct, field

from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit, edits_of_patch, is_v4a
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import RecentEntries
from penstock_jobs.importers.report import SourceUnfit
from penstock_jobs.importers.sources import decode

_EXIT = re.compile(r"(?:Process exited with code|Exit code:|exit code:?) (-?\d+)")
_FAILED = ("apply_patch verification failed", "failed to parse function arguments", "error:")
_REFUSED = ("rejected by user", "user rejected", "aborted by user")


class CallOutcome(NamedTuple):
    output: object
    ok: bool | None
    error_class: str | None
    duration_ms: float | None
    kept: dict[str, Any]


def arguments_of(item: Row) -> object:
    """An object, or the text that the model wrote."""
    for name in ("arguments", "input", "action"):
        value = item.get(name)
        if value is None:
            continue
        if isinstance(value, str) and value[:1] == "{":
            try:
                return decode(value.encode())
            except (SourceUnfit, UnicodeEncodeError):
                return value
        return value
    return None


def outcome_of(output: object) -> CallOutcome:
    kept: dict[str, Any] = {}
    success: bool | None = None
    if isinstance(output, str) and output.startswith('{"output":'):
        with suppress(SourceUnfit, UnicodeEncodeError):
            output = decode(output.encode())
    if isinstance(output, dict):
        success = fields.flag(output, "success")
        kept = fields.mapping(output, "metadata")
        content = output.get("output", output.get("content"))
        output = content if content is not None else output
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        texts = [fields.text(part, "text") for part in output]
        if all(text is not None for text in texts):
            output = "\n".join(text for text in texts if text is not None)
    text = output if isinstance(output, str) else ""
    code = kept.get("exit_code")
    if code is None and (exited := _EXIT.search(text[:400])):
        code = int(exited[1])
    seconds = kept.get("duration_seconds")
    ok = success if success is not None else None if code is None else code == 0
    if ok is None and text:
        ok = False if text.lower().startswith((*_FAILED, *_REFUSED)) else None
    refused = any(phrase in text[:200].lower() for phrase in _REFUSED)
    error_class = ("user_aborted" if refused else "unknown") if ok is False else None
    duration = seconds * 1000 if isinstance(seconds, int | float) and seconds >= 0 else None
    return CallOutcome(output, ok, error_class, duration, kept)


class Patches(Struct):
    """Patches that were asked for and are not known to be applied yet."""

    asked: dict[str, str] = field(default_factory=dict)
    applied: RecentEntries[bool] = field(default_factory=RecentEntries)

    def note(self, call_id: str, arguments: object) -> None:
        patch = next((text for text in _strings(arguments) if is_v4a(text)), None)
        if patch is not None:
            self.asked[call_id] = patch

    def of_output(
        self, call_id: str, ok: bool | None, folder: str | None
    ) -> Iterator[dict[str, Any]]:
        patch = self.asked.pop(call_id, None)
        if patch is not None and ok is not False and not self.applied.get(call_id):
            self.applied[call_id] = True
            yield from _payloads(call_id, edits_of_patch(patch, by_hunk=True), folder)

    def of_changes(self, event: Row, folder: str | None) -> Iterator[dict[str, Any]]:
        call_id = fields.identifier(event, "call_id") or fields.identifier(event, "id")
        status = fields.text(event, "status") or "completed"
        failed = event.get("success") is False or status not in ("completed", "Completed")
        if call_id is None or failed or self.applied.get(call_id):
            return
        self.applied[call_id] = True
        self.asked.pop(call_id, None)
        yield from _payloads(call_id, _changes(fields.mapping(event, "changes")), folder)


def _changes(changes: Row) -> Iterator[FileEdit]:
    for path in changes:
        change = fields.mapping(changes, path)
        kind = fields.text(change, "type")
        if kind is None and len(change) == 1:  # the tag stands outside in older ones
            kind = next(iter(change))
            change = fields.mapping(change, kind)
        content = fields.text(change, "content")
        if kind == "add":
            yield FileEdit(path, "", content or "", is_whole=True)
        elif kind == "delete":
            yield FileEdit(path, content or "", "", is_whole=content is not None, deleted=True)
        elif diff := fields.text(change, "unified_diff"):
            headed = diff if diff.startswith("--- ") else f"--- {path}\n+++ {path}\n{diff}"
            moved = fields.text(change, "move_path")
            for edit in edits_of_patch(headed, by_hunk=True):
                yield edit._replace(path=path, moved_to=moved)


def _payloads(
    call_id: str, edits: Iterator[FileEdit], folder: str | None
) -> Iterator[dict[str, Any]]:
    for place, edit in enumerate(edits):
        path = join(folder, edit.path) if folder and not isabs(edit.path) else edit.path
        edit_id = f"{call_id}-{place}" if place else call_id
        payload = edit._replace(path=path).payload(call_id, edit_id=edit_id)
        yield {name: value for name, value in payload.items() if value is not None}


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
