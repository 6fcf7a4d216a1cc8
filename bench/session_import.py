"""How fast sessions of Claude Code are imported, from their file to segments."""

import json
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.core.settings import load_settings
from penstock.ingest.file_import import FileImporter
from penstock.lake.lake import open_or_make
from penstock_jobs.importers.import_run import plan_import
from penstock_jobs.importers.progress import ImportProgress
from penstock_jobs.importers.session_import import SessionImporter

_BYTES = 60_000_000
_FILE_CHARS = 9_000
_CALLS_PER_PROMPT = 8
_SESSION = "5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a01"
_WORDS = (
    "def", "return", "self", "value", "total", "price", "order", "item", "list", "index", "for",
    "in", "range", "if", "not", "class", "import", "open", "read", "write", "session", "lake",
)  # fmt: skip


_RATE = Goal(what="Claude Code JSONL to segments, per CPU second", at_least=30, unit=" MB")


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    """Megabytes of the file per CPU second of this process, which does all of it."""
    source = here / f"{_SESSION}.jsonl"
    _write_session(source, size.of(_BYTES))
    with open_or_make(load_settings(here / "data")) as lake:
        files = FileImporter(lake, "default")
        importer = SessionImporter(files, ImportProgress(lake.database, "default"))
        began = time.process_time()
        for each, of_format, _size in plan_import([source]).sources:
            for _ in importer.take(each, of_format):
                pass
        importer.flush()
        files.finish()
        spent = time.process_time() - began
    rate = source.stat().st_size / 1e6 / spent
    yield _RATE.figure(rate)


def _write_session(path: Path, size: int) -> None:
    """As the client writes it: answers over three rows, files whole beside each edit and look."""
    chance = random.Random(1)
    texts = _Texts(chance)
    numbers, calls = count(1), count(1)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            rows: list[dict[str, Any]] = [
                {"type": "user", "message": {"role": "user", "content": texts.of(300)}}
            ]
            for _ in range(_CALLS_PER_PROMPT):
                rows += _call(next(calls), texts, chance)
            for row in rows:
                written += file.write(json.dumps(_with_ids(row, next(numbers))) + "\n")


class _Texts:
    """Made-up code, and a file that the session edits."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.file = self.of(_FILE_CHARS)

    def of(self, chars: int) -> str:
        lines: list[str] = []
        while sum(map(len, lines)) < chars:
            lines.append(" ".join(self._chance.choices(_WORDS, k=self._chance.randint(2, 9))))
        return "\n".join(lines) + "\n"


def _with_ids(row: dict[str, Any], number: int) -> dict[str, Any]:
    clock = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
    ids = {"uuid": f"{number:08x}-0000-4000-8000-0123456789ab", "sessionId": _SESSION}
    ids |= {"parentUuid": f"{number - 1:08x}-0000-4000-8000-0123456789ab"}
    place = {"cwd": "/code/shop", "version": "2.1.80", "gitBranch": "main", "isSidechain": False}
    return ids | place | {"timestamp": f"2026-11-{1 + number // 86_400:02}T{clock}"} | row


def _call(number: int, texts: _Texts, chance: random.Random) -> list[dict[str, Any]]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 50_000, "output_tokens": 300}
    call = f"toolu_{number}"
    drawn = chance.random()
    if drawn < 0.2:
        start = chance.randrange(len(texts.file) - 100)
        old, new = texts.file[start : start + 80], texts.of(80)
        record: dict[str, Any] = {"filePath": "/code/shop/a.py", "originalFile": texts.file}
        record |= {"oldString": old, "newString": new, "userModified": False}
        asked: dict[str, Any] = {"name": "Edit", "input": {"old_string": old, "new_string": new}}
        texts.file = texts.file.replace(old, new, 1)[:_FILE_CHARS]
        output = texts.of(500)
    elif drawn < 0.5:
        output = texts.file
        facts = {"filePath": "/code/shop/a.py", "content": output, "startLine": 1}
        record = {"type": "text", "file": facts | {"numLines": 9, "totalLines": 9}}
        asked = {"name": "Read", "input": {"file_path": "/code/shop/a.py"}}
    else:
        output = texts.of(2_500)
        record = {"stdout": output, "stderr": "", "interrupted": False}
        asked = {"name": "Bash", "input": {"command": "make test"}}
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": texts.of(400), "signature": "E" * 300},
        {"type": "text", "text": texts.of(150)},
        {"type": "tool_use", "id": call, **asked},
    ]
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "role": "assistant",
        "model": "claude-opus-4-5",
    }
    message |= {"usage": usage, "stop_reason": None}
    rows = [{"type": "assistant", "message": message | {"content": [block]}} for block in blocks]
    result = {"type": "tool_result", "tool_use_id": call, "content": output}
    rows.append({"type": "user", "message": {"content": [result]}, "toolUseResult": record})
    return rows


MEASUREMENT = Measurement(
    name="session-import",
    title="Sessions of Claude Code",
    about="""
A file of 60 MB as the client writes it (answers over three rows, files whole beside each edit and
look), imported into segments by one process.
""",
    goals=(_RATE,),
    run=_measure,
)
