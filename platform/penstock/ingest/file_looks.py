"""What a file looks like that holds no events, and what to do about it."""

import csv
import re
from collections.abc import Sequence
from itertools import islice

import msgspec

#: What an event has at least, as it stands in its line.
_MARK = b'"session_id"'
_NEEDED = ("session_id", "ts", "type", "payload")
#: Of a file so much is looked at closely.
_LOOK_BYTES = 64 * 1024
_LINES_MAX = 20
_KEYS_MAX = 6
_FORM = (
    "An event is a JSON object with session_id, ts, type and payload, one a line: docs/events.md"
)
_IMPORT_AS = "`penstock import FILE --format {name}` reads such sessions"
#: Keys by which lines of others are known, and what they are.
_KNOWN_ROWS: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset({"sessionId", "uuid"}), "sessions of Claude Code", "claude-code"),
    (frozenset({"timestamp", "type", "payload"}), "sessions of Codex", "codex"),
    (frozenset({"resourceSpans"}), "traces of OpenTelemetry", ""),
    (
        frozenset({"task", "score"}),
        "results of a benchmark: `penstock bench import` reads them",
        "",
    ),
)
_MARKUP = re.compile(rb"\s*<(\?xml|!doctype|html|svg|[a-z]+[\s>])", re.IGNORECASE)


def unlike_events(content: bytes) -> str | None:
    """Why no events are in a text file that begins so, and what to do; None where some may be."""
    look = content.removeprefix(b"\xef\xbb\xbf").strip()
    if not look:
        return "it is empty"
    if _MARK in content:
        return None
    looks, remedy = _look_of(look)
    return f"it holds no events: it looks like {looks}. {remedy or _FORM}"


def _look_of(look: bytes) -> tuple[str, str]:
    if look.startswith(b"["):
        return _array_look(look)
    lines = [line for line in look[:_LOOK_BYTES].splitlines() if line.strip()][:_LINES_MAX]
    rows = [_decoded(line) for line in lines]
    objects = [row for row in rows if isinstance(row, dict)]
    if objects:
        what, remedy = _rows_look(objects)
        return (what if len(lines) > 1 else what.replace("lines of", "a line of")), remedy
    if rows[0] is not None:
        return f"lines of JSON that are {_kind_of(rows[0])}", ""
    if look.startswith(b"{"):
        whole = _decoded(look)
        if isinstance(whole, dict):
            return f"one JSON object with {_keys(whole)}", _remedy_of([whole])
        return "JSON that is written over several lines", ""
    if _MARKUP.match(look):
        return "HTML or XML", ""
    return _table_look(lines) or "plain text", ""


def _array_look(look: bytes) -> tuple[str, str]:
    """The elements of a long array are looked at up to where it is cut."""
    rows = _decoded(look)
    if rows is None:
        first = re.match(rb"\[\s*(\{[^{}]*\})", look)
        rows = [_decoded(first[1])] if first else None
    if not rows or not isinstance(rows, list):
        return "an empty JSON array" if rows == [] else "a JSON array", ""
    objects = [row for row in rows[:_LINES_MAX] if isinstance(row, dict)]
    if not objects:
        return f"a JSON array of {_kind_of(rows[0])}", ""
    what, remedy = _rows_look(objects)
    return what.replace("lines of JSON", "a JSON array of objects"), remedy


def _rows_look(rows: Sequence[dict[str, object]]) -> tuple[str, str]:
    common = frozenset.intersection(*(frozenset(row) for row in rows))
    for keys, what, _ in _KNOWN_ROWS:
        if keys <= common or keys <= rows[-1].keys():
            return what, _remedy_of(rows)
    missing = [name for name in _NEEDED if name not in common]
    remedy = f"Its objects lack {', '.join(missing)}. {_FORM}"
    return f"lines of JSON with {_keys(rows[0])}", remedy


def _remedy_of(rows: Sequence[dict[str, object]]) -> str:
    for keys, _, name in _KNOWN_ROWS:
        if keys <= rows[-1].keys():
            return _IMPORT_AS.format(name=name) if name else ""
    return ""


def _table_look(lines: Sequence[bytes]) -> str | None:
    """Lines with the same number of separators are a table."""
    texts = [line.decode(errors="replace") for line in lines]
    for separator, name in ((",", "CSV"), ("\t", "a table with tabs"), (";", "CSV with ;")):
        rows = list(islice(csv.reader(texts, delimiter=separator), _LINES_MAX))
        widths = {len(row) for row in rows}
        if len(rows) > 1 and len(widths) == 1 and widths != {1}:
            return f"{name}, with the columns {_named(rows[0])}"
    return None


def _decoded(text: bytes) -> object:
    """None for what is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def _keys(row: dict[str, object]) -> str:
    return f"the keys {_named(list(row))}" if row else "no keys"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_KEYS_MAX])
    return shown + (", …" if len(names) > _KEYS_MAX else "")


def _kind_of(value: object) -> str:
    kinds = {str: "texts", bool: "true and false", int: "numbers", float: "numbers", list: "arrays"}
    return kinds.get(type(value), "no objects")
