"""Where reading the lines of a file stopped, so that a file that grew is read on from there.

A file is only read on if it is the same one, and still holds what it held before the place: agents
also cut off the end of their files, or write them anew."""

import os
from typing import BinaryIO

from msgspec import Struct
from xxhash import xxh3_128_hexdigest

#: So much before a place has to be as it was.
_TAIL_BYTES = 64 * 1024


class PlaceLost(Exception):
    """The file is another than before, or what it holds before the place is."""


class LinePlace(Struct, frozen=True):
    """The end of a whole line: what follows has not been read."""

    inode: int
    offset: int = 0
    #: How many lines lie before it.
    lines: int = 0
    #: What lies right before it.
    tail_bytes: int = 0
    tail_digest: str = ""


class LineCursor:
    """Goes through a file; `place` is as far as it came. It begins at the place, or at the
    beginning."""

    def __init__(self, place: LinePlace | None = None) -> None:
        self.place = place
        #: Whether a last line that lacks its end was given: the rest of it may come.
        self.is_past_place = False
        self._recent = b""
        self._bytes_past_place = 0

    @property
    def lines(self) -> int:
        return self.place.lines if self.place is not None else 0

    def open(self, file: BinaryIO) -> None:
        """Goes to the place in the file. Raises PlaceLost."""
        facts = os.fstat(file.fileno())
        place = self.place
        if place is None:
            self.place = LinePlace(facts.st_ino)
            return
        if facts.st_ino != place.inode or facts.st_size < place.offset:
            raise PlaceLost
        file.seek(place.offset - place.tail_bytes)
        self._recent = file.read(place.tail_bytes) if place.tail_bytes else b""
        if place.offset and xxh3_128_hexdigest(self._recent) != place.tail_digest:
            raise PlaceLost

    def move(self, piece: bytes, end: int, lines: int) -> None:
        """Over a piece of the file. The last whole line in it ends at `end`, or none does at 0;
        `lines` have ended by then."""
        assert self.place is not None
        if end:
            tail = _last(self._recent, piece[:end])
            offset = self.place.offset + self._bytes_past_place + end
            digest = xxh3_128_hexdigest(tail)
            self.place = LinePlace(self.place.inode, offset, lines, len(tail), digest)
            self._bytes_past_place = 0
        self._bytes_past_place += len(piece) - end
        self._recent = _last(self._recent, piece)


def _last(recent: bytes, piece: bytes) -> bytes:
    if len(piece) >= _TAIL_BYTES:
        return piece[-_TAIL_BYTES:]
    return (recent + piece)[-_TAIL_BYTES:]
