"""From judged lines to frames: each of one partition, none larger than the log takes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from penstock.events.frames import (
    Frame,
    Header,
    RejectedLine,
    decode_rejected,
    encode_frame,
    encode_rejected,
)
from penstock.events.placement import partition_of
from penstock.events.reading import Judged, Rejection

#: What is kept of a rejected line.
REJECTED_LINE_BYTES_MAX = 64 * 1024

#: What a value of one event may hold beside the event.
HEADER_BYTES_MAX = 8 * 1024
#: Refused lines belong to no session.
REJECTED_PARTITION = 0

Placed = tuple[int, Frame]


@dataclass(frozen=True)
class Packer:
    """Packs lines of one tenant that arrived together, for a log of so many partitions."""

    tenant: str
    received_us: int
    partitions: int
    rejected_line_bytes_max: int

    def pack(self, judged: Judged) -> Iterator[Placed]:
        """Frames with the partitions that they belong to."""
        header = Header(
            kind="events",
            tenant=self.tenant,
            received_us=self.received_us,
            counts={},
            partitions=self.partitions,
        )
        yield from _place(header, judged.lines, judged.sessions, judged.sources)
        if judged.rejections:
            refused = [self._kept(rejection) for rejection in judged.rejections]
            counts = _count(line.source for line in refused)
            header = msgspec.structs.replace(header, kind="rejected", counts=counts)
            yield REJECTED_PARTITION, Frame(header, encode_rejected(refused))

    def _kept(self, rejection: Rejection) -> RejectedLine:
        return RejectedLine(
            line=rejection.line,
            reason=rejection.reason,
            raw=rejection.raw[: self.rejected_line_bytes_max],
            source=rejection.source or "",
            truncated=len(rejection.raw) > self.rejected_line_bytes_max,
        )


def place_again(frame: Frame, found: int, partitions: int) -> Iterator[Placed]:
    """The same events, for a log that has so many partitions by now. Lines that cannot be read
    stay in the partition that they were found in: whoever stores them will say so."""
    header = msgspec.structs.replace(frame.header, partitions=partitions)
    lines = frame.body.split(b"\n")
    told = [_tell(line) for line in lines]
    known = [(line, one) for line, one in zip(lines, told, strict=True) if one is not None]
    yield from _place(
        header,
        [line for line, _ in known],
        [one.session_id for _, one in known],
        [one.source for _, one in known],
    )
    if unreadable := [line for line, one in zip(lines, told, strict=True) if one is None]:
        yield found, _frame(header, unreadable, [None] * len(unreadable))


def _place(
    header: Header, lines: list[bytes], sessions: list[str], sources: Sequence[str | None]
) -> Iterator[Placed]:
    """One frame a partition."""
    if header.partitions == 1:
        if lines:
            yield 0, _frame(header, lines, sources)
        return
    places: defaultdict[int, list[int]] = defaultdict(list)
    for position, session_id in enumerate(sessions):
        places[partition_of(session_id, header.partitions)].append(position)
    for partition, some in places.items():
        yield partition, _frame(header, [lines[i] for i in some], [sources[i] for i in some])


def _frame(header: Header, lines: list[bytes], sources: Sequence[str | None]) -> Frame:
    return Frame(msgspec.structs.replace(header, counts=_count(sources)), b"\n".join(lines))


def _count(sources: Iterable[str | None]) -> dict[str, int]:
    return {source or "": count for source, count in Counter(sources).items()}


# Frames that are too large


def encode_within(frame: Frame, bytes_max: int) -> list[bytes]:
    """The frame as values of the log, in several where one would be too large."""
    value = encode_frame(frame)
    lines = frame.body.split(b"\n") if len(value) > bytes_max else []
    if len(lines) < 2:
        return [value]
    middle = len(lines) // 2
    return [
        value
        for half in (lines[:middle], lines[middle:])
        for value in encode_within(_with_lines(frame, half), bytes_max)
    ]


def _with_lines(frame: Frame, lines: list[bytes]) -> Frame:
    if frame.header.kind == "rejected":
        return _frame(
            frame.header, lines, [one.source for one in decode_rejected(b"\n".join(lines))]
        )
    return _frame(frame.header, lines, [one.source if one else None for one in map(_tell, lines)])


class _Told(msgspec.Struct):
    """What of an event decides where it belongs and how it is counted."""

    session_id: str
    source: str | None = None


_told_decoder = msgspec.json.Decoder(_Told)


def _tell(line: bytes) -> _Told | None:
    try:
        return _told_decoder.decode(line)
    except (ValueError, RecursionError):
        return None
