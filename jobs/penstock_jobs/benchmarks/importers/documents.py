"""Files of others, read with bounds: how large, how deep, in which encoding."""

import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Unfit(Exception):
    """Why a document cannot be read."""


#: Small documents are read whole to see what they are.
_LOOK_BYTES_MAX = 256 * 1024 * 1024
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: What gives a document its form, after whatever does not; or a string that never ends.
_TOKEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb')*+([\[\]{},"])', re.DOTALL)
_NAME = re.compile(rb"\s*(" + _STRING + rb")\s*:", re.DOTALL)
#: Numbers that JSON does not have and many write: they become texts, which are no scores.
_NO_NUMBER = re.compile(_STRING + rb"|-?\b(?:NaN|Infinity)\b", re.DOTALL)
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def files(
    path: Path, *names: str, suffix: str = "", ends: Callable[[Path], bool] = lambda _folder: False
) -> Iterator[Path]:
    """Regular files so named, or with that end, in order; not below a folder that `ends` names,
    and not through links to folders. Raises OSError where a folder cannot be looked into: its
    results would be missing unseen."""
    if path.is_file():
        yield path
        return
    for folder, folders, inside in os.walk(path, onerror=_fail):
        folders.sort()
        for name in sorted(inside):
            if name in names or (suffix and name.endswith(suffix)):
                found = Path(folder, name)
                if found.is_file():
                    yield found
        if ends(Path(folder)):
            folders.clear()


def _fail(error: OSError) -> None:
    raise error


def read(path: Path, bytes_max: int) -> bytes:
    """Raises Unfit."""
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise Unfit(error.strerror or str(error)) from error
    if len(data) > bytes_max:
        raise Unfit(f"it is longer than {bytes_max} bytes")
    return data


def decode(data: bytes, kind: type[T]) -> T:
    """Raises Unfit."""
    if encoding := _BOMS.get(data[:2]):
        raise Unfit(f"it is {encoding}, and not UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        if b"NaN" in data or b"Infinity" in data:
            data = _NO_NUMBER.sub(_quoted, data)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unfit(str(error)) from error
    except RecursionError as error:
        raise Unfit("it is nested too deeply") from error


def _quoted(match: re.Match[bytes]) -> bytes:
    text = match[0]
    return text if text.startswith(b'"') else b'"' + text + b'"'


def try_decode(path: Path, kind: type[T]) -> T | None:
    """None where it is something else, or too large to look at."""
    try:
        return decode(read(path, _LOOK_BYTES_MAX), kind)
    except Unfit:
        return None


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """A file of any size, without its bytes in memory. Raises Unfit."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise Unfit(str(error)) from error


def members(data: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """The names of an object's members, and where the value of each begins and ends. Raises
    Unfit where the object ends too early."""
    for start, end in _values(data, 0, b"{"):
        name = _NAME.match(data, start)
        if name is None:
            raise Unfit("a member of it has no name")
        yield decode(name[1], str), name.end(), end


def items(data: mmap.mmap, start: int) -> Iterator[tuple[int, int]]:
    """Where each item of the array there begins and ends. Raises Unfit."""
    return _values(data, start, b"[")


def _values(data: mmap.mmap, start: int, opening: bytes) -> Iterator[tuple[int, int]]:
    depth, at, ended = 0, start, False
    for token in _TOKEN.finditer(data, start):
        kind = token[1]
        if kind == b'"':
            break
        if depth == 0 and kind != opening:
            raise Unfit("it is not of the form expected")
        if kind in (b"[", b"{"):
            depth += 1
            if depth == 1:
                at = token.end()
        elif kind in (b"]", b"}"):
            depth -= 1
            ended = depth == 0
        if (ended or (depth == 1 and kind == b",")) and not _blank(data, at, token.start(1)):
            yield at, token.start(1)
        if ended:
            return
        if depth == 1 and kind == b",":
            at = token.end()
    raise Unfit("it ends too early")


def _blank(data: mmap.mmap, start: int, end: int) -> bool:
    """Looks no further than at what a few spaces take: the value may be large."""
    return not data[start : min(end, start + 64)].strip() and not data[start:end].strip()


def seconds_between(start: object, end: object) -> float | None:
    """Of two times in ISO 8601; None where one is none, or they run backwards."""
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # one has a zone, and the other none
        return None
    return took if took >= 0 else None
