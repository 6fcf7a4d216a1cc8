"""Policies with one habit: honest ones, and such that try to look better than they are."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock_jobs.simulator.policy import STYLES, Style


def _read() -> dict[str, dict[str, Style]]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    known: dict[str, dict[str, Any]] = {
        style.name: msgspec.structs.asdict(style) for style in STYLES
    }

    def styles(rows: list[dict[str, Any]]) -> Iterator[Style]:
        for row in rows:
            for own in _variants(known.get(row.pop("like", ""), {}) | row):
                known.setdefault(own["name"], own)
                yield msgspec.convert(own, Style)

    return {
        group: {style.name: style for style in styles(rows)}
        for group, rows in tomllib.loads(text).items()
    }


def _variants(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a style for each value of an `each_` key, named after both."""
    key = next((key for key in row if key.startswith("each_")), None)
    if key is None:
        yield row
        return
    values, field = row.pop(key), key.removeprefix("each_")
    for value in values:
        name = f"{field.replace('_', ' ')} {value}" if isinstance(value, int) else value
        join = {"instead": " ", "folder": " in ", "mark": ", "}.get(field, "+")
        yield row | {"name": f"{row['name']}{join}{name}", field: value}


_HABITS = _read()
#: Styles by name.
HONEST, HACKS = _HABITS["honest"], _HABITS["hacks"]
