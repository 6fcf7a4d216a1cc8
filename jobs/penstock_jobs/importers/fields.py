"""Fields of rows that others wrote: of the expected type, or as if they were not there."""

from collections.abc import Mapping
from typing import Any

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
