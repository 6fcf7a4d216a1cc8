"""Reading attributes: exporters write one fact as text, as JSON in a text, or as a value."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.events.event import TS_MAX_US, TS_MIN_US
from penstock.events.messages import Message, is_part, messages_of, present
from penstock.ingest.otlp.records import Attributes

#: Names with more dots are nobody's.
_DOTS_MAX = 30
_INDEX_CHARS_MAX = 8


def text(attributes: Attributes, *names: str) -> str | None:
    """The first that is there and not empty."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def number(attributes: Attributes, *names: str) -> float | None:
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
    return None


def count(attributes: Attributes, *names: str) -> int | None:
    value = number(attributes, *names)
    return int(value) if value is not None and 0 <= value < 1 << 62 else None


def milliseconds(attributes: Attributes, *names: str) -> float | None:
    value = number(attributes, *names)
    return value if value is not None and 0 <= value < 1 << 62 else None


def truth(attributes: Attributes, name: str) -> bool | None:
    value = attributes.get(name)
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def structured(value: Any) -> Any:
    """A value, or what its JSON says; a text that is no JSON stays one."""
    if not isinstance(value, str) or value[:1] not in ("[", "{", '"'):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value


def is_cut(value: Any) -> bool:
    """Whether this is the text of a list or an object that ends too early: exporters cut long
    values."""
    return isinstance(value, str) and value[:1] in ("[", "{") and value is structured(value)


def messages_in(value: Any, role: str = "user") -> list[Message]:
    return messages_of(with_parts(structured(value)), role)


def with_parts(value: Any) -> Any:
    """What somebody says may look like JSON and is a text all the same, unless it is parts."""
    if isinstance(value, list):
        return [with_parts(item) for item in value]
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        return value
    parts = structured(value["content"])
    are_parts = isinstance(parts, list) and all(
        isinstance(part, dict) and (is_part(part) or "text" in part) for part in parts
    )
    return {**value, "content": parts} if are_parts and parts else value


def tree(attributes: Attributes, prefix: str) -> Any:
    """What stands under names that begin with `prefix`, with dots in names as levels; levels that
    are numbered are lists. None where there is nothing."""
    top: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *path, last = name[len(prefix) :].split(".", _DOTS_MAX)
        level = top
        for part in path:
            below = level.get(part)
            if not isinstance(below, dict):
                below = level[part] = {}
            level = below
        if not isinstance(level.get(last), dict):
            level[last] = value
    return with_lists(top) if top else None


def with_lists(level: dict[str, Any]) -> Any:
    """Levels whose names are all numbers are lists."""
    for name, value in level.items():
        if isinstance(value, dict):
            level[name] = with_lists(value)
    if level and all(
        name.isascii() and name.isdigit() and len(name) <= _INDEX_CHARS_MAX for name in level
    ):
        return [level[name] for name in sorted(level, key=int)]
    return level


def objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def usage(counts: Any, **names: Sequence[str]) -> dict[str, Any] | None:
    """Numbers of tokens as events have them, by what an exporter calls each."""
    held = counts if isinstance(counts, dict) else {}
    return present({name: count(held, *told) for name, told in names.items()}) or None


def has_any(attributes: Attributes, prefixes: Iterable[str]) -> bool:
    wanted = tuple(prefixes)
    return any(name.startswith(wanted) for name in attributes)


def microseconds(ns: int) -> int | None:
    """None for a time that no event can have, among them the 0 of a time that is not known."""
    us = ns // 1_000
    return us if TS_MIN_US <= us <= TS_MAX_US else None
