"""A request body, cut into lines: NDJSON, or a JSON array with one event an element."""

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

#: Lines of a chunk, however short they are: so many events are validated in some milliseconds.
CHUNK_LINES_MAX = 512
#: A larger array is not decoded at once: nobody else would have a turn.
ARRAY_BYTES_AT_ONCE_MAX = 2 * 1024 * 1024
#: In an array that is not decoded at once, an element with more brackets never ends.
ELEMENT_BRACKETS_MAX = 20_000

#: In how many places of an array the search for whole events behind a broken element looks, and
#: how far.
PLACES_MAX = 1_000
EVENT_BYTES_MAX = 256 * 1024

Chunk = tuple[int, list[bytes]]

_BEGINS_ARRAY = re.compile(rb"[ \t\r\n]{0,65536}+\[")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_body(
    body: bytes, chunk_bytes: int, first_line: int = 1, *, ndjson: bool = False
) -> Iterator[Chunk]:
    """Chunks of consecutive lines, each with the number of its first line. In an array the
    elements count as lines; a broken one is rejected later, and costs no other. `ndjson` says that
    the body is no array, whatever it begins with."""
    start = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
    array = None if ndjson else _BEGINS_ARRAY.match(body, start)
    if array:
        yield from _split_array(body, array.end(), chunk_bytes)
    else:
        yield from _split_lines(body, start, chunk_bytes, first_line)


def _split_lines(data: bytes, start: int, chunk_bytes: int, number: int) -> Iterator[Chunk]:
    while start < len(data):
        cut = data.rfind(b"\n", start, start + chunk_bytes)
        if cut < 0:  # one line is longer than a chunk
            cut = data.find(b"\n", start)
        cut = len(data) if cut < 0 else cut
        lines = data[start:cut].split(b"\n")
        for first in range(0, len(lines), CHUNK_LINES_MAX):
            yield number + first, lines[first : first + CHUNK_LINES_MAX]
        number += len(lines)
        start = cut + 1


# Arrays

_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def _split_array(body: bytes, start: int, chunk_bytes: int) -> Iterator[Chunk]:
    if len(body) <= ARRAY_BYTES_AT_ONCE_MAX:
        try:
            whole = _array_decoder.decode(memoryview(body)[start - 1 :])
        except (ValueError, RecursionError):
            pass  # the intact elements are found below
        else:
            for number, elements in _group(map(bytes, whole), chunk_bytes):
                yield number, list(map(_on_one_line, elements))
            return
    number = 1
    for first, elements in _group(_elements(body, start), chunk_bytes):
        number = first + len(elements)
        start += sum(map(len, elements)) + len(elements)
        yield first, list(map(_on_one_line, elements))
    yield from _split_lines(body, start, chunk_bytes, number)  # the text behind the array


# Cutting by brackets alone is slower, but a broken element does not cost the others. A text
# always matches from its opening quote, if need be to the end of the body: no byte is scanned
# twice.
_TEXT = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_BETWEEN_ELEMENTS = re.compile(rb'(?:[^"\[\]{},]++|' + _TEXT + rb")*+", re.DOTALL)
_IN_ELEMENT = re.compile(rb'(?:[^"\[\]{}]++|' + _TEXT + rb")*+", re.DOTALL)


def _elements(body: bytes, start: int) -> Iterator[bytes]:
    """The elements as they are; one comma or bracket follows each in the body."""
    places_left = PLACES_MAX
    while True:
        end = _element_end(body, start)
        if not _is_json(memoryview(body)[start:end]):
            for place in _EVENT_MAY_BEGIN.finditer(body, start, end):
                places_left -= 1
                if places_left < 0:
                    break
                if _begins_event(body, place.end()):
                    end = place.start()
                    break
        yield body[start:end]
        if body[end : end + 1] != b",":
            return
        start = end + 1


def _is_json(element: memoryview) -> bool:
    try:
        _element_decoder.decode(element)
    except (ValueError, RecursionError):
        return False
    return True


# Where a bracket or a quote is missing, brackets do not tell where the element ends. What looks
# like an event is one: that it was meant as a part of the broken one is less likely.
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


def _element_end(body: bytes, at: int) -> int:
    """The position of the comma or bracket behind the element, or the end of the body."""
    depth = 0
    for _ in range(ELEMENT_BRACKETS_MAX):
        match = (_IN_ELEMENT if depth else _BETWEEN_ELEMENTS).match(body, at)
        at = match.end() if match else at
        mark = body[at : at + 1]
        if not mark or (not depth and mark in b",]"):
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
    # A line break outside a text is white space. Inside a text it is not JSON, and stays there
    # for validation to report.
    element = element.strip()
    if b"\n" in element and _BREAKS_OUTSIDE_TEXTS.fullmatch(element):
        return element.replace(b"\n", b" ")
    return element
