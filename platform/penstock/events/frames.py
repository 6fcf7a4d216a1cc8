"""A value of the event log: lines that arrived together, with what the server knows of them.

The lines stay as JSON, one a line: what the gateway writes is what another producer may write."""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from penstock.events.bodies import split_body
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT, is_tenant
from penstock.events.validation import Judged, Rejection, judge

_LENGTH = struct.Struct("<I")


#: `unjudged` lines came into the log past the gateway: whoever reads them judges them first.
Kind = Literal["events", "rejected", "unjudged"]


class Header(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`counts` holds the number of lines by source; a source that is not given is ''."""

    kind: Kind
    tenant: str
    received_us: int
    counts: dict[str, int]
    schema_version: int = SCHEMA_VERSION
    #: How many partitions the log had when these lines were put into theirs; 0 is unknown.
    partitions: int = 0


class Frame(msgspec.Struct):
    header: Header
    body: bytes


class RejectedLine(msgspec.Struct, kw_only=True):
    """A line of a frame of kind `rejected`."""

    line: int
    reason: str
    raw: bytes
    source: str = ""
    truncated: bool = False


_header_decoder = msgspec.json.Decoder(Header)
_rejected_decoder = msgspec.json.Decoder(RejectedLine)


def encode_frame(frame: Frame) -> bytes:
    header = msgspec.json.encode(frame.header)
    return b"".join((_LENGTH.pack(len(header)), header, frame.body))


def decode_frame(value: bytes) -> Frame:
    """Raises ValueError for what is no frame."""
    if len(value) < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack_from(value)
    start = _LENGTH.size + length
    return Frame(_header_decoder.decode(value[_LENGTH.size : start]), value[start:])


def encode_rejected(lines: list[RejectedLine]) -> bytes:
    return msgspec.json.Encoder().encode_lines(lines).rstrip(b"\n")


def decode_rejected(body: bytes) -> list[RejectedLine]:
    """Raises ValueError."""
    return _rejected_decoder.decode_lines(body)


_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF
#: Sessions come back with every request; the hash is slow for Python.
_REMEMBERED = 1 << 16


@lru_cache(_REMEMBERED)
def partition_of(session_id: str, partitions: int) -> int:
    """The partition that holds this session as long as there are so many."""
    return (murmur2(session_id.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as 32 bits without a sign."""
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        found = (found * _MIX & _MASK) ^ word
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    found = (found ^ found >> 13) * _MIX & _MASK
    return found ^ found >> 15


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


_CHUNK_BYTES = 1024 * 1024


def encode_unjudged(lines: bytes, tenant: str, received_us: int, schema_version: int) -> bytes:
    """Lines as a producer wrote them past the gateway, as a value of the log."""
    header = Header(
        kind="unjudged",
        tenant=tenant,
        received_us=received_us,
        counts={},
        schema_version=schema_version,
    )
    return encode_frame(Frame(header, lines))


@dataclass(frozen=True)
class Arrivals:
    """Reads the values of a log of so many partitions."""

    partitions: int
    event_bytes_max: int
    rejected_line_bytes_max: int

    def placed(self, value: bytes, partition: int) -> Iterator[Placed]:
        """The judged frames of a value that was found in `partition`, each with the partition
        that its sessions belong to."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from self._judge(frame)
        elif frame.header.kind == "rejected" or frame.header.partitions == self.partitions:
            yield partition, frame
        else:
            yield from place_again(frame, partition, self.partitions)

    def frames(self, value: bytes) -> Iterator[Frame]:
        """The same for a reader to whom partitions do not matter."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from (judged for _, judged in self._judge(frame))
        else:
            yield frame

    def _judge(self, frame: Frame) -> Iterator[Placed]:
        header = frame.header
        known = is_tenant(header.tenant)
        packer = Packer(
            header.tenant if known else TENANT_DEFAULT,
            header.received_us,
            self.partitions,
            self.rejected_line_bytes_max,
        )
        if not known:
            yield from packer.pack(_refused(frame.body, "its tenant is empty, long or unprintable"))
        elif header.schema_version > SCHEMA_VERSION:
            reason = (
                f"its schema version is {header.schema_version}, "
                f"this Penstock knows those up to {SCHEMA_VERSION}"
            )
            yield from packer.pack(_refused(frame.body, reason))
        else:
            for number, lines in split_body(frame.body, _CHUNK_BYTES):
                yield from packer.pack(judge(lines, number, self.event_bytes_max))


def _decode(value: bytes) -> Frame:
    """What is no frame, or names no tenant, comes back as lines to be judged: they are refused."""
    try:
        frame = decode_frame(value)
    except ValueError:
        frame = decode_frame(encode_unjudged(value, TENANT_DEFAULT, 0, SCHEMA_VERSION))
    if not is_tenant(frame.header.tenant):
        frame.header.kind = "unjudged"
    return frame


def _refused(body: bytes, reason: str) -> Judged:
    return Judged([], [], [], [Rejection(1, reason, body, None)])
