"""Members of JSON objects, found in their text: what is cut out of it or put into it leaves every
other byte as it was."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_array_decoder = msgspec.json.Decoder(list[Raw])
_NAME = re.compile(rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"[ \t\r\n]*+:[ \t\r\n]*+)', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n]*+,?[ \t\r\n]*+")


class Member(NamedTuple):
    """Its places in the text: of its name's quote, of its value, and behind that."""

    start: int
    value: int
    end: int


class MemberChange(NamedTuple):
    start: int
    end: int
    content: bytes = b""


def members_of(text: bytes, start: int = 0, end: int | None = None) -> dict[str, Member]:
    """Those of the object that stands there, in their order. Raises ValueError for what is no
    object, or has a name twice."""
    part = text if end is None and not start else text[start:end]
    found: dict[str, Member] = {}
    place = start + part.find(b"{") + 1
    for name, raw in _object_decoder.decode(part).items():
        head = _NAME.match(text, place)
        value = head.end() if head else 0
        written = memoryview(raw)
        value_end = value + len(written)
        # A name that stands twice has its last value at the place of its first.
        if head is None or text[value:value_end] != written:
            raise ValueError("a name stands twice in an object")
        found[name] = Member(head.start(1), value, value_end)
        place = _behind(text, value_end)
    return found


def elements_of(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The places of the elements of the array that stands there. Raises ValueError."""
    place = text.find(b"[", start, end) + 1
    for raw in _array_decoder.decode(text[start:end]):
        begin = _BETWEEN.match(text, place)
        place = begin.end() if begin else place
        yield place, place + len(memoryview(raw))
        place += len(memoryview(raw))


def removals(members: dict[str, Member], names: Collection[str]) -> list[MemberChange]:
    """The changes that take these out, each with one comma."""
    listed = list(members.items())
    kept = [at for at, (name, _) in enumerate(listed) if name not in names]
    last = kept[-1] if kept else -1
    changes = [
        MemberChange(member.start, listed[at + 1][1].start)
        for at, (name, member) in enumerate(listed[: max(last, 0)])
        if name in names
    ]
    if last + 1 < len(listed):
        begin = listed[last][1].end if kept else listed[0][1].start
        changes.append(MemberChange(begin, listed[-1][1].end))
    return changes


def changed(text: bytes, changes: Sequence[MemberChange]) -> bytes:
    """The text with changes that do not overlap."""
    parts, place = [], 0
    for change in sorted(changes):
        parts += [text[place : change.start], change.content]
        place = change.end
    return b"".join([*parts, text[place:]])


def _behind(text: bytes, place: int) -> int:
    between = _BETWEEN.match(text, place)
    return between.end() if between else place
