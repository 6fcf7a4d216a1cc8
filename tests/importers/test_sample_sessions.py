"""Sessions of others, in a folder that PENSTOCK_SAMPLE_SESSIONS names: a count that shares no code
with the importers says the same as the lake."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.session_sources import events_of, report_of

SAMPLES = Path(os.environ.get("PENSTOCK_SAMPLE_SESSIONS", "/nowhere"))
CLAUDE_CODE = sorted(SAMPLES.glob("claude_code/**/*.jsonl"))
CODEX = sorted(SAMPLES.glob("codex/**/*.jsonl"))
_EDITING = {"Edit", "MultiEdit", "Write", "NotebookEdit"}
_LOCAL = ("/clear", "/compact", "/init-local")
_CLIENT = ("<system-reminder>", "<local-command", "<task-notification>", "Caveat: The messages")

pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="PENSTOCK_SAMPLE_SESSIONS names no folder"
)


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def counted(path: Path) -> Counter[str]:
    """What the lake has, by the events."""
    counts: Counter[str] = Counter()
    for event in events_of(path):
        payload = event["payload"]
        counts[event["type"]] += 1
        counts["tool_calls"] += len(payload.get("tool_calls") or ())
        usage = payload.get("usage") or {}
        counts["prompt"] += usage.get("prompt") or 0
        counts["completion"] += usage.get("completion") or 0
    kinds = ("user_message", "model_call", "tool_result", "edit")
    names = (*kinds, "tool_calls", "prompt", "completion")
    return Counter({name: counts[name] for name in names if counts[name]})


def content_of(row: dict[str, Any]) -> list[Any]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, list) else [] if content is None else [content]


def is_prompt(row: dict[str, Any]) -> bool:
    texts = [
        block if isinstance(block, str) else block.get("text", "")
        for block in content_of(row)
        if isinstance(block, str) or block.get("type") == "text"
    ]
    said = [text for text in texts if text and not text.startswith(_CLIENT)]
    if not said or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    if said[0].startswith("[Request interrupted"):
        return False
    return not any(f"<command-name>{name}</command-name>" in said[0] for name in _LOCAL)


def count_claude_code(path: Path) -> Counter[str]:
    """Each answer once, by its message id; the usage of its last row."""
    counts: Counter[str] = Counter()
    usage: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    seen: set[str] = set()
    for number, row in enumerate(rows_of(path)):
        whole = json.dumps([row.get("uuid"), row.get("sessionId"), row.get("message")])
        if not row.get("sessionId") or whole in seen:
            continue
        seen.add(whole)
        blocks = [block for block in content_of(row) if isinstance(block, dict)]
        if row["type"] == "assistant":
            message = row["message"]
            usage[message.get("id") or f"row {number}"] = message.get("usage") or {}
            for block in blocks:
                if block["type"] == "tool_use":
                    counts["tool_calls"] += 1
                    names[block["id"]] = block["name"]
        elif row["type"] == "user":
            results = [block for block in blocks if block.get("type") == "tool_result"]
            counts["tool_result"] += len(results)
            counts["edit"] += sum(
                names.get(block["tool_use_id"]) in _EDITING and not block.get("is_error")
                for block in results
            )
            counts["user_message"] += is_prompt(row)
    counts["model_call"] = len(usage)
    for each in usage.values():
        counts["completion"] += each.get("output_tokens", 0)
        parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        counts["prompt"] += sum(each.get(part) or 0 for part in parts)
    return +counts


@pytest.mark.parametrize("path", CLAUDE_CODE, ids=lambda path: path.name)
def test_claude_code_is_counted_as_by_hand(path: Path) -> None:
    assert counted(path) == count_claude_code(path)


def count_codex(path: Path) -> Counter[str]:
    """The tokens are the last total, since it only grows in these files."""
    counts: Counter[str] = Counter()
    for row in rows_of(path):
        payload = row.get("payload") or {}
        kind = payload.get("type")
        if kind in ("function_call", "custom_tool_call", "local_shell_call", "web_search_call"):
            counts["tool_calls"] += 1
        elif kind in ("function_call_output", "custom_tool_call_output"):
            counts["tool_result"] += 1
        elif kind == "message" and payload["role"] == "user":
            text = payload["content"][0]["text"]
            counts["user_message"] += not text.startswith(("<", "# AGENTS.md"))
        elif kind == "token_count" and payload.get("info"):
            total = payload["info"]["total_token_usage"]
            counts["prompt"], counts["completion"] = total["input_tokens"], total["output_tokens"]
    return +counts


@pytest.mark.parametrize("path", CODEX, ids=lambda path: path.name)
def test_codex_is_counted_as_by_hand(path: Path) -> None:
    lake = counted(path)
    del lake["model_call"]
    assert lake == count_codex(path)


@pytest.mark.parametrize("path", [*CLAUDE_CODE, *CODEX], ids=lambda path: path.name)
def test_each_file_is_read(path: Path) -> None:
    assert report_of(path).unfit == []
