"""Fields of rows that others wrote: of the expected type, or as if they were not there."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from penstock.events.event import ID_CHARS_MAX, TS_MAX, TS_MAX_US, TS_MIN, TS_MIN_US

Row = Mapping[str, Any]


def text(row: Row, name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None


def count(row: Row, name: str) -> int | None:
    """A whole number from 0 on."""
    value = row.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if whole else None


def flag(row: Row, name: str) -> bool | None:
    value = row.get(name)
    return value if isinstance(value, bool) else None


def mapping(row: Row, name: str) -> dict[str, Any]:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def items(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []


def rows(row: Row, name: str) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [item for item in items(row, name) if isinstance(item, dict)]


def without(row: Row, *names: str) -> dict[str, Any]:
    """What is left of it: fields that nothing else was made of, so that they are kept."""
    return {name: value for name, value in row.items() if name not in names}


def identifier(row: Row, name: str) -> str | None:
    """A text that may be an id of an event."""
    value = text(row, name)
    return value if value and len(value) <= ID_CHARS_MAX and "\0" not in value else None


def moment(row: Row, name: str) -> str | int | None:
    """A time as events have it. A number is of the size that seconds, milliseconds or microseconds
    have nowadays."""
    value = row.get(name)
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            return None
        if parsed.tzinfo is None:
            value, parsed = f"{value}Z", parsed.replace(tzinfo=UTC)
        return value if TS_MIN <= parsed < TS_MAX else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for scale in (1_000_000, 1_000, 1):
        if TS_MIN_US <= value * scale < TS_MAX_US:
            return round(value * scale)
    return None


def is_recent(ts: str | int | None, seconds: float) -> bool:
    """Whether that was so many seconds ago, or less, by the clock of this machine."""
    if isinstance(ts, str):
        ts = round(datetime.fromisoformat(ts).timestamp() * 1_000_000)
    return ts is not None and time.time() * 1_000_000 - ts < seconds * 1_000_000


def project_of(folder: str | None) -> str | None:
    """The name of a project by the folder that its agent worked in."""
    name = PurePath(folder.replace("\\", "/")).name if folder else ""
    return name[:ID_CHARS_MAX] or None
