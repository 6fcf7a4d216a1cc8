"""Answers on standard output, for people as tables or for programs as one JSON document;
everything else on standard error."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.errors import PenstockError, one_line

_CELL_CHARS_MAX = 200


def show_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(encode(value), indent=2).decode() + "\n")


def encode(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table as wide as the terminal; in a pipe as wide as it needs to be."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    for name in columns:
        table.add_column(escape(name), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table, soft_wrap=not console.is_terminal)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    text = encode(value).decode() if isinstance(value, Mapping | list) else str(value)
    text = "".join(char if char.isprintable() else " " for char in text)
    return escape(text if len(text) <= _CELL_CHARS_MAX else text[: _CELL_CHARS_MAX - 1] + "…")


def say(text: str) -> None:
    """A line for the person, on standard error."""
    sys.stderr.write(text + "\n")


def show_error(error: PenstockError) -> None:
    say(f"penstock: {one_line(error)}")


def time_of(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, tz=UTC)


def facts(value: Any) -> dict[str, Any]:
    """A record for JSON, its times readable."""
    fields = asdict(value)
    for name, content in fields.items():
        if name.endswith("_at") or name == "hour":
            fields[name] = time_of(content).isoformat() if content is not None else None
        elif isinstance(content, bytes):
            fields[name] = content.decode(errors="replace")
    return fields
