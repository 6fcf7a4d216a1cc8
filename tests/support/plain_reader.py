"""Counts sessions of agents in a second way, which shares no code with the importers: of each file
the prompts, calls of models, calls of tools, edits, and tokens of prompts and answers."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

Counts = Counter[str]
EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit")
Row = dict[str, Any]


def is_session(path: Path) -> bool:
    """Whether a file of the samples holds messages."""
    if "storage" in path.parts:
        return "message" in path.parts or "part" in path.parts
    return path.suffix in (".json", ".jsonl", ".db") and path.name != "workspace.json"


def rows_of(path: Path) -> list[Row]:
    rows, text = [], path.read_text(encoding="utf-8", errors="replace")
    for line in [text] if path.suffix == ".json" else text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if isinstance(row, dict)]


def claude_code(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for path in paths:
        if path.suffix == ".json":
            loglines = json.loads(path.read_text())["loglines"]
            rows = [row | {"uuid": str(at)} for at, row in enumerate(loglines)]
        else:
            rows = rows_of(path)
        usages: dict[Any, Row] = {}
        tools: dict[Any, Row] = {}
        seen = set()
        for row in rows:
            message, kind = row.get("message") or {}, row.get("type")
            message = {"content": message} if isinstance(message, str) else message
            mark = row.get("uuid"), json.dumps(message, sort_keys=True)
            if kind not in ("user", "assistant") or mark in seen:
                continue
            seen.add(mark)
            content = message.get("content") or []
            parts = [content] if isinstance(content, str) else content
            blocks = [b if isinstance(b, dict) else {"type": "text", "text": b} for b in parts]
            if kind == "assistant":
                if message.get("model") == "<synthetic>" or row.get("isApiErrorMessage"):
                    continue
                key = message.get("id") or row["uuid"]
                usage, best = message.get("usage") or {}, usages.get(key) or {}
                usages[key] = max(usage, best, key=lambda each: each.get("output_tokens") or 0)
                uses = {b["id"]: b for b in blocks if b["type"] == "tool_use"}
                counts["tool_calls"] += len(uses)
                tools |= uses
                continue
            for block in blocks:
                use = tools.get(block.get("tool_use_id"))
                if use and not block.get("is_error") and use["name"] in EDITING:
                    done = row.get("toolUseResult")
                    whole = isinstance(done, dict) and any("originalFile" in key for key in done)
                    counts["edits"] += 1 if whole else len(use["input"].get("edits") or [1])
            said = "".join(b.get("text") or "" for b in blocks if b.get("type") == "text").strip()
            local = "<command-name>/clear", "<local-command", "Caveat:", "[Request interrupted"
            own = any(mark in said[:200] for mark in local) or row.get("isCompactSummary")
            counts["prompts"] += bool(said) and not row.get("isMeta") and not own
        counts["calls"] += len(usages)
        for usage in usages.values():
            counts["completion"] += usage.get("output_tokens") or 0
            counts["prompt"] += sum(value or 0 for name, value in usage.items()
                                    if name.endswith("input_tokens"))  # fmt: skip
    return counts


def codex(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for path in paths:
        last: Row = {}
        for row in rows_of(path):
            item = row.get("payload") or {}
            kind = item.get("type")
            said = "".join(each.get("text") or "" for each in item.get("content") or [])
            counts["prompts"] += item.get("role") == "user" and not said.startswith(
                ("<", "# AGENTS")
            )
            counts["tool_calls"] += row.get("type") == "response_item" and kind in (
                "function_call", "custom_tool_call", "local_shell_call", "web_search_call"
            )  # fmt: skip
            if kind == "token_count" and (item.get("info") or {}).get("total_token_usage"):
                last = item["info"]["total_token_usage"]
        counts["prompt"] += last.get("input_tokens", 0)
        counts["completion"] += last.get("output_tokens", 0)
    return counts


def copilot_cli(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for row in (row for path in paths for row in rows_of(path)):
        data, kind = row.get("data") or {}, row.get("type")
        counts["prompts"] += kind == "user.message"
        counts["calls"] += kind == "assistant.message"
        if kind == "assistant.message":
            counts["tool_calls"] += len(data.get("toolRequests") or [])
            counts["completion"] += data.get("outputTokens") or 0
        for metrics in (data.get("modelMetrics") or {}).values():
            counts["prompt"] += metrics["usage"]["inputTokens"]
    return counts


def qwen(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for row in (row for path in paths for row in rows_of(path)):
        parts = (row.get("message") or {}).get("parts") or []
        counts["prompts"] += row.get("type") == "user"
        if row.get("type") == "assistant":
            counts["calls"] += 1
            counts["tool_calls"] += sum("functionCall" in part for part in parts)
            counts["prompt"] += row["usageMetadata"]["promptTokenCount"]
            counts["completion"] += row["usageMetadata"]["candidatesTokenCount"]
    return counts


def opencode_messages(paths: list[Path]) -> Iterator[tuple[Row, list[Row]]]:
    """Each message once, with its parts, from a database or from files."""
    found: dict[str, tuple[Row, dict[str, Row]]] = {}
    for path in paths:
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                messages = database.execute("SELECT id, data FROM message").fetchall()
                parts = database.execute("SELECT message_id, id, data FROM part").fetchall()
        else:
            [facts] = rows_of(path) or [{}]
            is_part, known = "part" in path.parts, {"role", "type"} & facts.keys()
            messages = [] if is_part or not known else [(facts["id"], json.dumps(facts))]
            parts = [(facts["messageID"], facts["id"], json.dumps(facts))] if is_part else []
        for name, data in messages:
            held = found.setdefault(name, ({}, {}))
            held[0].update(json.loads(data))
        for name, part, data in parts:
            found.setdefault(name, ({}, {}))[1][part] = json.loads(data)
    for facts, parts_of in found.values():
        yield facts, [*parts_of.values(), *(facts.get("content") or [])]


def opencode(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for facts, parts in opencode_messages(paths):
        role = facts.get("role") or facts.get("type")
        counts["prompts"] += role == "user"
        counts["calls"] += role == "assistant"
        counts["tool_calls"] += sum(part.get("type") == "tool" for part in parts)
        tokens = facts.get("tokens") or {}
        cache = tokens.get("cache") or {}
        counts["prompt"] += tokens.get("input", 0) + cache.get("read", 0) + cache.get("write", 0)
        counts["completion"] += tokens.get("output", 0)
    return counts


def atif(paths: list[Path]) -> Counts:
    counts: Counts = Counter()
    for path in paths:
        for step in json.loads(path.read_text())["steps"]:
            metrics = step.get("metrics") or {}
            counts["prompts"] += step["source"] == "user"
            counts["calls"] += step["source"] == "agent"
            counts["tool_calls"] += len(step.get("tool_calls") or [])
            counts["prompt"] += metrics.get("prompt_tokens") or 0
            counts["completion"] += metrics.get("completion_tokens") or 0
    return counts


#: Each reader by the folder of its samples, with what it counts.
READERS: dict[str, tuple[Callable[[list[Path]], Counts], tuple[str, ...]]] = {
    "atif": (atif, ("prompts", "calls", "tool_calls", "prompt", "completion")),
    "claude_code": (
        claude_code, ("prompts", "calls", "tool_calls", "edits", "prompt", "completion")
    ),
    "codex": (codex, ("prompts", "tool_calls", "prompt", "completion")),
    "copilot_cli": (copilot_cli, ("prompts", "calls", "tool_calls", "prompt", "completion")),
    "opencode": (opencode, ("prompts", "calls", "tool_calls", "prompt", "completion")),
    "qwen": (qwen, ("prompts", "calls", "tool_calls", "prompt", "completion")),
}  # fmt: skip
