"""Server-sent events, cut out of a stream as they come."""

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DATA = b"data:"


class EventCutter:
    """Gives events with the empty lines that end them; what is not whole yet waits."""

    def __init__(self, bytes_max: int) -> None:
        """An event that is longer comes in pieces, as it is."""
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        #: The end of what came; an end of an event may lie across two pieces.
        self._tail = b""

    def cut(self, piece: bytes) -> list[bytes]:
        # Large events come in many pieces: they are put together once.
        seen = self._tail + piece
        self._parts.append(piece)
        self._tail = seen[-3:]
        self._size += len(piece)
        if self._size <= self._bytes_max and not _END.search(seen):
            return []
        text = self.rest()
        events, place = [], 0
        for end in _END.finditer(text):
            events.append(text[place : end.end()])
            place = end.end()
        rest = text[place:]
        if len(rest) > self._bytes_max:
            events.append(rest)
        elif rest:
            self._parts, self._size, self._tail = [rest], len(rest), rest[-3:]
        return events

    def rest(self) -> bytes:
        rest = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self._tail = [], 0, b""
        return rest


def data_of(event: bytes) -> tuple[int, int]:
    """Where its data stands; an empty place for none, or for one of several lines."""
    start = 0 if event.startswith(_DATA) else event.find(b"\n" + _DATA) + 1
    if not start and not event.startswith(_DATA):
        return 0, 0
    begin = start + len(_DATA)
    begin += event[begin : begin + 1] == b" "
    end = len(event.rstrip(b"\r\n"))
    line = event.find(b"\n", begin, end)
    return (0, 0) if line >= 0 else (begin, end)
