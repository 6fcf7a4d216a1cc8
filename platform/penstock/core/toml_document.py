"""Reading TOML that users wrote, key by key or as a dataclass. Unknown keys are refused by name.

`where` names the file and the part of it. Every function raises InvalidInput."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from math import inf
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from penstock.core.errors import InvalidInput

#: Types of fields of a section: any number, whole numbers from 1 and from 0 on, a time such as 90s.
Number = Annotated[float, "number"]
Positive = Annotated[int, 1]
NotNegative = Annotated[int, 0]
Seconds = Annotated[int, "s"]

Section = TypeVar("Section")

#: Recipes, policies, loops, suites, queries.
TEXT_BYTES_MAX = 4 * 1024 * 1024
#: The parser's time grows with the square of a key's parts, and is two seconds for these.
TOML_CHARS_MAX = 1 << 20
_KEY_PARTS_MAX = 64
_KEY_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_KEY_PART}){{{_KEY_PARTS_MAX}}}")
_SHOWN_CHARS_MAX = 200
#: Nobody means a longer time.
_DURATION_DIGITS_MAX = 9
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_text(path: Path) -> str:
    try:
        return read_bounded(path, TEXT_BYTES_MAX, str(path)).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(what=str(path), why=str(error)) from error


def read_bounded(path: Path, bytes_max: int, what: str) -> bytes:
    """Read a small file. `what` names it in errors."""
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InvalidInput(what=what, why=error.strerror or str(error)) from error
    if len(content) > bytes_max:
        raise InvalidInput(what=what, why=f"it is longer than {bytes_max} bytes")
    return content


def parse_toml(content: str, where: str) -> dict[str, Any]:
    if len(content) > TOML_CHARS_MAX:
        why = f"it has {len(content)} characters, over the limit of {TOML_CHARS_MAX}"
        raise InvalidInput(what=where, why=why)
    if _LONG_KEY.search(content):
        why = f"it has a key of more than {_KEY_PARTS_MAX} parts with dots between them"
        raise InvalidInput(what=where, why=why)
    try:
        return tomllib.loads(content)
    except RecursionError as error:
        raise InvalidInput(what=where, why="it is nested too deeply") from error
    except ValueError as error:  # also of numbers with thousands of digits
        raise InvalidInput(what=where, why=str(error)) from error


def refuse_unknown(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in keys:
        if key not in known:
            raise InvalidInput(what=f"{key!r} in {where}", why=unknown(key, known))


def unknown(name: str, known: Iterable[str]) -> str:
    """Say that there is no such name, with the nearest known one."""
    known = list(known)
    if not known:
        return "there is no such name; none is known"
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return f"there is no such name; {hint}"


def text(section: Mapping[str, Any], key: str, where: str) -> str:
    value = section.get(key)
    if not isinstance(value, str) or not value:
        raise _unfit(key, "a text", value, where)
    return value


def texts(section: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = section.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _unfit(key, "a list of texts", value, where)
    return tuple(value)


def table(section: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = section.get(key, {})
    if not isinstance(value, dict):
        raise _unfit(key, "a table", value, where)
    return value


def number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unfit(key, "a number", value, where)
    try:
        as_float = float(value)
    except OverflowError:  # whole numbers have no end
        as_float = inf
    if not -inf < as_float < inf:
        raise _unfit(key, "a number", as_float, where)
    return as_float


def whole(section: Mapping[str, Any], key: str, default: int, where: str, *, least: int) -> int:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise _unfit(key, f"a whole number from {least} on", value, where)
    return value


def flag(section: Mapping[str, Any], key: str, where: str, *, default: bool = False) -> bool:
    value = section.get(key, default)
    if not isinstance(value, bool):
        raise _unfit(key, "true or false", value, where)
    return value


def choice(
    section: Mapping[str, Any], key: str, of: tuple[Any, ...], default: Any, where: str
) -> Any:
    value = section.get(key, default)
    if value not in of:
        near = get_close_matches(str(value), of, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidInput(what=where, why=f"{key} is {value!r}, not {' or '.join(of)}{hint}")
    return value


def _unfit(key: str, needed: str, value: object, where: str) -> InvalidInput:
    shown = repr(value)[:_SHOWN_CHARS_MAX]
    return InvalidInput(what=where, why=f"{key} has to be {needed}, and is {shown}")


def read_section(
    kind: type[Section], section: Mapping[str, Any], where: str, directory: Path = Path()
) -> Section:
    """Read a section as a dataclass, whose types say what fields may hold. A field of Seconds ends
    with `_s`, and its key does not."""
    kinds = get_type_hints(kind, include_extras=True)
    for name, hint in kinds.items():
        if NoneType in get_args(hint):
            kinds[name] = get_args(hint)[0]
    keys = {name: name.removesuffix("_s") if kinds[name] == Seconds else name for name in kinds}
    refuse_unknown(section, keys.values(), where)
    needed = [keys[field.name] for field in fields(kind) if field.default is MISSING]  # type: ignore[arg-type]
    section = dict.fromkeys(needed) | dict(section)
    values = {
        name: _read(section, key, kinds[name], where, directory)
        for name, key in keys.items()
        if key in section
    }
    try:
        return kind(**values)
    except ValueError as error:
        raise InvalidInput(what=where, why=str(error)) from error


def _read(section: Mapping[str, Any], key: str, kind: Any, where: str, directory: Path) -> Any:
    value, origin, arguments = section[key], get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        nested = {} if value is None else table(section, key, where)
        return read_section(kind, nested, f"[{key}] of {where}", directory)
    if kind == Seconds:
        duration = text(section, key, where)
        digits, unit = duration[:-1], duration[-1]
        plain = digits.isascii() and digits.isdecimal() and len(digits) <= _DURATION_DIGITS_MAX
        if unit not in _SECONDS or not plain:
            raise _unfit(key, "a time such as 90s, 30m, 6h or 7d", duration[:40], where)
        return int(digits) * _SECONDS[unit]
    if kind == Number:
        return number(value, key, where)
    if origin is Annotated:
        return whole(section, key, 0, where, least=arguments[1])
    if origin is Literal:
        return choice(section, key, arguments, None, where)
    if origin is tuple:
        return _read_list(section, key, arguments[0], where, directory)
    if kind is bool:
        return flag(section, key, where)
    if kind is float and not 0 <= (value := number(value, key, where)) <= 1:
        raise InvalidInput(what=where, why=f"{key} has to lie between 0 and 1, and is {value!r}")
    if kind is float:
        return value
    return directory / text(section, key, where) if kind is Path else text(section, key, where)


def _read_list(section: Mapping[str, Any], key: str, kind: Any, where: str, directory: Path) -> Any:
    if kind in (str, Path):
        items = texts(section, key, where)
        return tuple(directory / item for item in items) if kind is Path else items
    items = section[key]
    if kind == Number:
        if not isinstance(items, list):
            raise _unfit(key, "a list", items, where)
        return tuple(number(item, key, where) for item in items)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidInput(what=where, why=f"{key} is written as [[{key}]]")
    return tuple(
        read_section(kind, item, f"[[{key}]] {place} of {where}", directory)
        for place, item in enumerate(items, 1)
    )


def toml_text(document: Mapping[str, Any], above: str = "") -> str:
    """Write values, then sections. Strings of JSON are strings of TOML."""
    plain = {name: value for name, value in document.items() if not isinstance(value, dict)}
    told = {name: value for name, value in plain.items() if value is not None}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in told.items()]
    for name in (name for name in document if name not in plain):
        lines += [f"\n[{above}{name}]", toml_text(document[name], f"{above}{name}.").rstrip()]
    return "\n".join(lines) + "\n"
