"""A request body, cut into lines: NDJSON, or a JSON array with one event an element."""

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
import numpy as np

#: So many events are validated in some milliseconds.
CHUNK_LINES_MAX = 512
#: A larger array is not decoded at once, since nobody else would have a turn.
ARRAY_BYTES_AT_ONCE_MAX = 2 * 1024 * 1024
#: In such an array an element with more brackets never ends.
ELEMENT_BRACKETS_MAX = 20_000

#: How often, and how far, whole events behind broken elements of an array are looked for.
PLACES_MAX = 1_000
EVENT_BYTES_MAX = 256 * 1024

#: Stands for the missing end of an array. It is no event, and so is rejected.
ARRAY_WITHOUT_END = b"["

Chunk = tuple[int, list[bytes]]

_LINE_BREAK = ord("\n")

_WHITE_BYTES_MAX = 65_536
_BEGINS_ARRAY = re.compile(rb"[ \t\r\n]{0,%d}+\[" % _WHITE_BYTES_MAX)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Enough to tell whether a body is an array.
_HEAD_BYTES = len(_BYTE_ORDER_MARK) + _WHITE_BYTES_MAX + 1


class ArrayTooLarge(ValueError):
    """An array is too large. It is in memory as a whole."""


def split_body(
    parts: Iterable[bytes],
    chunk_bytes: int,
    first_line: int = 1,
    *,
    ndjson: bool = False,
    line_bytes_max: int = sys.maxsize,
    array_bytes_max: int = sys.maxsize,
) -> Iterator[Chunk]:
    """Cut a body into chunks of lines, each with the number of its first one. Elements of an array
    are lines; a broken one costs no other."""
    rest = iter(parts)
    head = next(rest, b"")
    while len(head) < _HEAD_BYTES and (part := next(rest, None)) is not None:
        head += part
    start = len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0
    if ndjson or not (array := _BEGINS_ARRAY.match(head, start)):
        yield from _split_lines(
            chain([head[start:] if start else head], rest), chunk_bytes, first_line, line_bytes_max
        )
        return
    whole = io.BytesIO(head)  # a single part is neither copied here nor below
    whole.seek(0, io.SEEK_END)
    for part in rest:
        if whole.write(part) and whole.tell() > array_bytes_max:
            raise ArrayTooLarge(f"the array has more than {array_bytes_max} bytes")
        yield first_line, []
    yield from _split_array(whole.getvalue(), array.end(), chunk_bytes, line_bytes_max)


def _split_lines(
    parts: Iterable[bytes], chunk_bytes: int, number: int, bytes_max: int
) -> Iterator[Chunk]:
    kept, kept_bytes = [], 0  # of a line that goes on in the next part
    for part in parts:
        end, start = part.rfind(b"\n"), 0
        if end < 0:
            kept.append(part[: bytes_max + 1 - kept_bytes])
            kept_bytes += len(kept[-1])
            yield number, []
            continue
        if kept_bytes:
            first = part.find(b"\n")
            kept.append(part[: min(first, bytes_max + 1 - kept_bytes)])
            yield number, [b"".join(kept)]
            number, start = number + 1, first + 1
        for lines in _lines_of(part, start, end + 1, chunk_bytes, bytes_max):
            yield number, lines
            number += len(lines)
        kept = [part[end + 1 : end + 2 + bytes_max]]
        kept_bytes = len(kept[0])
    if kept_bytes:
        yield number, [b"".join(kept)]


def _lines_of(
    data: bytes, start: int, end: int, chunk_bytes: int, bytes_max: int
) -> Iterator[list[bytes]]:
    """Cut the data between `start` and `end` at ends of lines."""
    while start < end:
        last = min(end, start + chunk_bytes)
        # Twenty times as fast as `count`.
        count = np.count_nonzero(np.frombuffer(data, np.uint8, last - start, start) == _LINE_BREAK)
        if count > CHUNK_LINES_MAX:
            # Of very short lines a smaller piece holds as many.
            last = start + max(1, (last - start) * CHUNK_LINES_MAX // int(count))
        cut = data.rfind(b"\n", start, last)
        if cut < 0:  # one line is longer than a chunk
            cut = data.find(b"\n", start, end)
            lines = [data[start : min(cut, start + bytes_max + 1)]]
        else:
            lines = data[start:cut].split(b"\n")
        for first in range(0, len(lines), CHUNK_LINES_MAX):
            yield lines[first : first + CHUNK_LINES_MAX]
        start = cut + 1


# Arrays

_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def _split_array(body: bytes, start: int, chunk_bytes: int, bytes_max: int) -> Iterator[Chunk]:
    if len(body) <= ARRAY_BYTES_AT_ONCE_MAX:
        try:
            whole = _array_decoder.decode(memoryview(body)[start - 1 :])
        except (ValueError, RecursionError):
            pass  # the intact elements are found below
        else:
            for number, elements in _group(map(bytes, whole), chunk_bytes):
                yield number, list(map(_on_one_line, elements))
            return
    number, begin, end = 1, start, start

    def texts() -> Iterator[bytes]:
        nonlocal begin, end
        for begin, end in _elements(body, start, bytes_max):
            text = body[begin : min(end, begin + bytes_max + 1)]
            yield text if end < len(body) or text.strip() else ARRAY_WITHOUT_END

    for first, elements in _group(texts(), chunk_bytes):
        number = first + len(elements)
        yield first, list(map(_on_one_line, elements))
    if end >= len(body) and _is_json(memoryview(body)[begin:end]):
        yield number, [ARRAY_WITHOUT_END]
    # The text behind the array.
    yield from _split_lines([body[end + 1 :]], chunk_bytes, number, bytes_max)


# Cutting by brackets alone is slower, but a broken element does not cost the others. A text matches
# to the end of the body at the latest: no byte is scanned twice.
_TEXT = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_BETWEEN_ELEMENTS = re.compile(rb'(?:[^"\[\]{},]++|' + _TEXT + rb")*+", re.DOTALL)
_IN_ELEMENT = re.compile(rb'(?:[^"\[\]{}]++|' + _TEXT + rb")*+", re.DOTALL)


def _elements(body: bytes, start: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Find where elements begin and end. One comma or bracket follows each."""
    places_left = PLACES_MAX
    while True:
        end = _element_end(body, start, bytes_max)
        too_long = end - start > bytes_max
        if too_long or not _is_json(memoryview(body)[start:end]):
            look = end if too_long else start
            end = len(body) if too_long else end
            for place in _EVENT_MAY_BEGIN.finditer(body, look, end):
                places_left -= 1
                if places_left < 0:
                    break
                if _begins_event(body, place.end()):
                    end = place.start()
                    break
        yield start, end
        if body[end : end + 1] != b",":
            return
        start = end + 1


def _is_json(element: memoryview) -> bool:
    try:
        _element_decoder.decode(element)
    except (ValueError, RecursionError):
        return False
    return True


# Where a bracket or a quote is missing, what looks like an event is taken for one.
_EVENT_MAY_BEGIN = re.compile(rb",\s*+(?=\{)")
_event_decoder = json.JSONDecoder()
_element_decoder = msgspec.json.Decoder(msgspec.Raw)


def _begins_event(body: bytes, at: int) -> bool:
    text = body[at : at + EVENT_BYTES_MAX].decode(errors="replace")
    try:
        event, _end = _event_decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and {"session_id", "ts", "type"} <= event.keys()


def _element_end(body: bytes, at: int, bytes_max: int) -> int:
    """Find where an element ends; the search stops at the limit."""
    depth, last = 0, min(len(body), at + bytes_max + 1)
    for _ in range(ELEMENT_BRACKETS_MAX):
        match = (_IN_ELEMENT if depth else _BETWEEN_ELEMENTS).match(body, at, last)
        at = match.end() if match else at
        mark = body[at : at + 1]
        if at >= last or not mark or (not depth and mark in b",]"):
            return at
        depth += 1 if mark in b"[{" else -1 if depth else 0
        at += 1
    return len(body)


def _group(lines: Iterable[bytes], chunk_bytes: int) -> Iterator[Chunk]:
    group: list[bytes] = []
    size, first = 0, 1
    for line in lines:
        if group and (size + len(line) > chunk_bytes or len(group) == CHUNK_LINES_MAX):
            yield first, group
            first += len(group)
            group, size = [], 0
        group.append(line)
        size += len(line)
    yield first, group


# JSON whose texts are whole and hold no line break.
_BREAKS_OUTSIDE_TEXTS = re.compile(rb'(?:[^"]++|"(?:[^"\\\n]++|\\[^\n])*+")*+')


def _on_one_line(element: bytes) -> bytes:
    # A line break outside a text is white space. One inside is not JSON: validation reports it.
    element = element.strip()
    if b"\n" in element and _BREAKS_OUTSIDE_TEXTS.fullmatch(element):
        return element.replace(b"\n", b" ")
    return element
