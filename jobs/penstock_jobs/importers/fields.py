"""Fields of rows that others wrote. A value of an unexpected type counts as missing.

A field is named by its path: `text(row, "message", "id")` is the `id` of the object `message`.
"""

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from penstock.events.event import ID_CHARS_MAX, TS_MAX_US, TS_MIN_US, microseconds
from penstock.events.messages import count_of, json_of
from penstock_jobs.importers.report import SourceUnfit

Row = Mapping[str, Any]

_decoder = msgspec.json.Decoder()
_sorted_encoder = msgspec.json.Encoder(order="deterministic")
#: Numbers are seconds, milliseconds, microseconds or nanoseconds, whichever gives a usual year.
_SCALES = (1_000_000, 1_000, 1, 0.001)


def at(row: object, *path: str) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row


def text(row: object, *path: str) -> str | None:
    value = at(row, *path)
    return value if isinstance(value, str) else None


def count(row: object, *path: str) -> int | None:
    return count_of(at(row, *path))


def flag(row: object, *path: str) -> bool | None:
    value = at(row, *path)
    return value if isinstance(value, bool) else None


def mapping(row: object, *path: str) -> dict[str, Any]:
    value = at(row, *path)
    return value if isinstance(value, dict) else {}


def items(row: object, *path: str) -> list[Any]:
    value = at(row, *path)
    return value if isinstance(value, list) else []


def rows(row: object, *path: str) -> list[dict[str, Any]]:
    return [item for item in items(row, *path) if isinstance(item, dict)]


def moment(row: object, *path: str) -> int | None:
    return moment_us(at(row, *path))


def identifier(row: object, *path: str) -> str | None:
    value = text(row, *path)
    return value if value and len(value) <= ID_CHARS_MAX and "\0" not in value else None


def first(row: Row, *names: str) -> Any:
    return next((row[name] for name in names if row.get(name)), None)


def first_text(row: Row, *names: str) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)


def without(row: Row, *names: str) -> dict[str, Any]:
    """The other fields of a row, which are kept as they are."""
    return {name: value for name, value in row.items() if name not in names}


def digest_of(*parts: object) -> str:
    """Make a short, reproducible name for values that have none."""
    return xxh3_128_hexdigest(_sorted_encoder.encode(parts))


def decode(content: bytes) -> Any:
    """Decode JSON that others wrote. Raises SourceUnfit."""
    try:
        return _decoder.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        mended = _decoded_leniently(content)
        if mended is None:
            raise SourceUnfit(f"it is not JSON: {error}") from error
        return mended
    except RecursionError as error:
        raise SourceUnfit("it is nested too deeply") from error


#: Written by many programs though JSON does not allow it: half of a surrogate pair, NaN, Infinity.
_ODD = re.compile(rb"\\u[dD][89a-fA-F]|\bNaN\b|\bInfinity\b")
_HALF = re.compile("[\ud800-\udfff]")


def _decoded_leniently(content: bytes) -> Any:
    if not _ODD.search(content):
        return None
    try:
        return _mended(json.loads(content, parse_constant=lambda _name: None))
    except (ValueError, RecursionError):
        return None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_HALF.sub("\ufffd", name): _mended(item) for name, item in value.items()}
    return value


def arguments_of(value: object) -> dict[str, Any]:
    value = json_of(value.lstrip()) if isinstance(value, str) else value
    return value if isinstance(value, dict) else {}


def moment_us(value: object) -> int | None:
    """Read a time: RFC 3339, in UTC if it has no zone, or a number since 1970.

    Returns None for anything else, and for times that an event cannot have."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        moments = (value * scale for scale in _SCALES)
        return next((int(us) for us in moments if TS_MIN_US <= us <= TS_MAX_US), None)
    try:
        parsed = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None
    if parsed is None:
        return None
    us = microseconds(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))
    return us if TS_MIN_US <= us <= TS_MAX_US else None


def is_recent(ts_us: int | None) -> bool:
    """Whether a time is less than ten minutes ago, by the clock of this machine."""
    return ts_us is not None and time.time() * 1_000_000 - ts_us < 600 * 1_000_000


def milliseconds(began_us: int | None, ended_us: int | None) -> float | None:
    if began_us is None or ended_us is None or ended_us < began_us:
        return None
    return (ended_us - began_us) / 1000


def project_of(folder: str | None) -> str | None:
    """Name a project by the folder that its agent worked in."""
    name = PurePath(folder.replace("\\", "/")).name if folder else ""
    return name[:ID_CHARS_MAX] or None
