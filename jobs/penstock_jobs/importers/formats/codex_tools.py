"""Codex's tools: the arguments of calls, their outcomes, and the patches that they applied."""

import re
from collections.abc import Iterable, Iterator
from posixpath import isabs, join
from typing import Any

from msgspec import Struct, field

from penstock.events.messages import json_of, present
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit, edits_of_patch, is_v4a
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import RecentEntries

_EXIT = re.compile(r"(?:Process exited with code|Exit code:|exit code:?) (-?\d+)")
_FAILED = ("apply_patch verification failed", "failed to parse function arguments", "error:")
_REFUSED = ("rejected by user", "user rejected", "aborted by user")


def call_arguments(item: Row) -> object:
    given = next(
        (item[n] for n in ("arguments", "input", "action") if item.get(n) is not None), None
    )
    return json_of(given) if isinstance(given, str) and given[:1] == "{" else given


def call_outcome(output: object) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    ok: bool | None = None
    if isinstance(output, str) and output.startswith('{"output":'):
        output = json_of(output)
    if isinstance(output, dict):
        ok, kept = fields.flag(output, "success"), fields.mapping(output, "metadata")
        content = output.get("output", output.get("content"))
        output = content if content is not None else output
    if isinstance(output, list):
        texts = [fields.text(part, "text") for part in output]
        if None not in texts:
            output = "\n".join(filter(None, texts))
    text = output if isinstance(output, str) else ""
    code = kept.get("exit_code")
    if code is None and (exited := _EXIT.search(text[:400])):
        code = int(exited[1])
    if ok is None and code is not None:
        ok = code == 0
    if ok is None and text.lower().startswith((*_FAILED, *_REFUSED)):
        ok = False
    refused = any(phrase in text[:200].lower() for phrase in _REFUSED)
    seconds = kept.get("duration_seconds")
    return {
        "ok": ok,
        "error_class": ("user_aborted" if refused else "unknown") if ok is False else None,
        "output": output,
        "duration_ms": seconds * 1000
        if isinstance(seconds, int | float) and seconds >= 0
        else None,
        "codex": kept or None,
    }


class Patches(Struct):
    """Patches of calls whose outcome is not known yet."""

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
        if patch is not None and ok is not False:
            yield from self._applied(call_id, edits_of_patch(patch, by_hunk=True), folder)

    def of_changes(self, event: Row, folder: str | None) -> Iterator[dict[str, Any]]:
        call_id = fields.identifier(event, "call_id") or fields.identifier(event, "id")
        status = fields.text(event, "status") or "completed"
        if call_id and event.get("success") is not False and status.lower() == "completed":
            yield from self._applied(call_id, _changes(fields.mapping(event, "changes")), folder)

    def _applied(
        self, call_id: str, edits: Iterable[FileEdit], folder: str | None
    ) -> Iterator[dict[str, Any]]:
        if self.applied.get(call_id):
            return
        self.applied[call_id] = True
        self.asked.pop(call_id, None)
        for place, edit in enumerate(edits):
            if edit.before == edit.after and not edit.deleted and not edit.moved_to:
                continue  # models also write hunks without a change
            path = join(folder, edit.path) if folder and not isabs(edit.path) else edit.path
            edit_id = f"{call_id}-{place}" if place else call_id
            yield present(edit._replace(path=path).payload(call_id, edit_id=edit_id))


def _changes(changes: Row) -> Iterator[FileEdit]:
    for path in changes:
        change = fields.mapping(changes, path)
        kind = fields.text(change, "type")
        if kind is None and len(change) == 1:  # older versions have the tag outside
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


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
