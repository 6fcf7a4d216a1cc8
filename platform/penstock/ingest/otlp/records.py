"""Spans, log records and metrics, as decoded from either encoding of OTLP."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from penstock.events.event import TS_MAX_US, TS_MIN_US
from penstock.events.messages import Message, is_part, messages_of, present

Attributes = dict[str, Any]

#: More attributes than any exporter writes: a long conversation with one per field has about ten
#: thousand.
ATTRIBUTES_MAX = 65_536
#: A larger span or record would delay others while it is decoded. The longest conversations of
#: models have a few MiB.
RECORD_BYTES_MAX = 8 * 1024 * 1024
DEPTH_MAX = 32

STATUS_ERROR = 2
CUMULATIVE = 2


class Origin(Struct):
    resource: Attributes = field(default_factory=dict)
    scope: str = ""


class SpanEvent(Struct):
    name: str = ""
    attributes: Attributes = field(default_factory=dict)


class Span(Struct):
    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    status_code: int = 0
    status_message: str = ""


class LogRecord(Struct):
    """A log record; without a span its ids are empty."""

    time_ns: int = 0
    observed_ns: int = 0
    body: Any = None
    attributes: Attributes = field(default_factory=dict)
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""

    @property
    def name(self) -> str:
        """The name of the record's event; empty for a line of a log. The attribute comes first:
        some libraries put a source location into the field."""
        name = self.attributes.get("event.name")
        return name if isinstance(name, str) and name else self.event_name


class DataPoint(Struct):
    """A value of a metric: the sum of `count` measurements, or of a counter what it counted."""

    total: float
    count: int
    time_ns: int
    start_ns: int
    attributes: Attributes


class Metric(Struct):
    name: str
    points: list[DataPoint]
    is_cumulative: bool = False


class Malformed(Struct):
    why: str


#: No exporter uses names with more dots.
_DOTS_MAX = 30
_INDEX_CHARS_MAX = 8


def chars_in(attributes: Attributes) -> int:
    return sum(len(value) for value in attributes.values() if isinstance(value, str))


def text(attributes: Attributes, *names: str) -> str | None:
    """The first non-empty text among these attributes."""
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
    """The value, decoded if it is JSON text."""
    if not isinstance(value, str) or value[:1] not in ("[", "{", '"'):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value


def is_cut(value: Any) -> bool:
    """Whether text is the beginning of a list or object: exporters truncate long values."""
    return isinstance(value, str) and value[:1] in ("[", "{") and value is structured(value)


def messages_in(value: Any, role: str = "user") -> list[Message]:
    return messages_of(with_parts(structured(value)), role)


def with_parts(value: Any) -> Any:
    """Decode a message's content only if it consists of parts: what people write may look like
    JSON."""
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
    """The attributes below `prefix` as a tree: dots separate levels, and numbered levels are lists.
    None without any."""
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
    """Turn levels with only numbers as names into lists."""
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
    """Token counts under the names of events, from an exporter's names."""
    held = counts if isinstance(counts, dict) else {}
    return present({name: count(held, *told) for name, told in names.items()}) or None


def has_any(attributes: Attributes, prefixes: Iterable[str]) -> bool:
    wanted = tuple(prefixes)
    return any(name.startswith(wanted) for name in attributes)


def microseconds(ns: int) -> int | None:
    """A time in microseconds; None for one that no event can have, such as 0 for unknown."""
    us = ns // 1_000
    return us if TS_MIN_US <= us <= TS_MAX_US else None
