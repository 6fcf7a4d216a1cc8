"""Rows of Claude Code's files, written for tests in its format."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SESSION = "5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a01"


def row(kind: str, number: int, **more: Any) -> Row:
    base = {
        "parentUuid": f"u{number - 1}" if number else None,
        "isSidechain": False,
        "cwd": "/code/shop",
        "sessionId": SESSION,
        "version": "2.1.80",
        "gitBranch": "main",
        "type": kind,
        "uuid": f"u{number}",
        "timestamp": f"2026-11-20T09:{number // 60:02}:{number % 60:02}.000Z",
    }
    return base | more


def asks(number: int, text: Any, **more: Any) -> Row:
    return row("user", number, message={"role": "user", "content": text}, **more)


def answers(number: int, message: str, *blocks: Row, usage: int = 10, **more: Any) -> Row:
    content = list(blocks)
    tokens = {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": usage}
    body = {"id": message, "role": "assistant", "model": "claude-opus-4-5", "content": content}
    return row("assistant", number, message=body | {"stop_reason": None, "usage": tokens}, **more)


def said(text: str) -> Row:
    return {"type": "text", "text": text}


def uses(call: str, name: str, **arguments: Any) -> Row:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(number: int, call: str, content: Any = "ok", record: Any = None, **block: Any) -> Row:
    done = {"type": "tool_result", "tool_use_id": call, "content": content} | block
    more = {"toolUseResult": record} if record is not None else {}
    return asks(number, [done], **more)


def write(folder: Path, *rows: Row, name: str = f"{SESSION}.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file
