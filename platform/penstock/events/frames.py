"""Frames, the values of the event log: lines of one tenant that arrived together, for a partition.

The lines stay JSON, so that other producers may write them too. No value raises an error here: a
line that is no event is rejected with a reason, as in the gateway."""

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from penstock.events.bodies import split_body
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT, is_tenant
from penstock.events.validation import Rejection, ValidatedLines, validate_lines

HEADER_BYTES_MAX = 8 * 1024
REJECTED_LINE_BYTES_MAX = 64 * 1024
#: Rejected lines belong to no session.
REJECTED_PARTITION = 0

_CHUNK_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")

#: `unjudged` lines came past the gateway; their reader validates them.
Kind = Literal["events", "rejected", "unjudged"]
#: What the lines of a frame may hold: placeholders of masked texts, and token ids.
Sign = Literal["placeholders", "token_ids"]


class FrameHeader(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`counts` are lines by source, which is '' where it is missing."""

    kind: Kind
    tenant: str
    received_us: int
    counts: dict[str, int]
    schema_version: int = SCHEMA_VERSION
    #: The partitions of the log when the frame was written; 0 is unknown.
    partitions: int = 0
    #: What the lines may hold; None where nobody looked.
    signs: list[Sign] | None = None


class Frame(msgspec.Struct):
    header: FrameHeader
    body: bytes


Redact = Callable[[list[bytes], str], tuple[list[bytes], list[Rejection]]]
#: A frame with its partition.
PlacedFrame = tuple[int, Frame]


class RejectedLine(msgspec.Struct):
    line: int
    reason: str
    raw: bytes
    source: str = ""
    truncated: bool = False


_header_decoder = msgspec.json.Decoder(FrameHeader)
_rejected_decoder = msgspec.json.Decoder(RejectedLine)


def encode_frame(frame: Frame) -> bytes:
    header = msgspec.json.encode(frame.header)
    return b"".join((_LENGTH.pack(len(header)), header, frame.body))


def decode_frame(value: bytes) -> Frame:
    if len(value) < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack_from(value)
    start = _LENGTH.size + length
    return Frame(_header_decoder.decode(value[_LENGTH.size : start]), value[start:])


def tenant_of(value: bytes) -> str:
    """Read the tenant of a value of the log from its header."""
    try:
        (length,) = _LENGTH.unpack_from(value)
        tenant = _header_decoder.decode(value[_LENGTH.size : _LENGTH.size + length]).tenant
    except (ValueError, struct.error):
        return TENANT_DEFAULT
    return tenant if is_tenant(tenant) else TENANT_DEFAULT


def encode_unjudged(lines: bytes, tenant: str, received_us: int, schema_version: int) -> bytes:
    """Pack lines that a producer wrote past the gateway."""
    header = FrameHeader(
        kind="unjudged",
        tenant=tenant,
        received_us=received_us,
        counts={},
        schema_version=schema_version,
    )
    return encode_frame(Frame(header, lines))


def decode_rejected(body: bytes) -> list[RejectedLine]:
    return _rejected_decoder.decode_lines(body)


# A session's partition is that of Kafka's own clients for a record with the session's id as key:
# every producer writes a session into one partition.

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(1 << 16)  # sessions come back with every request, and the hash is slow in Python
def partition_of(session_id: str, partitions: int) -> int:
    return (murmur2(session_id.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner."""
    length = len(data)
    digest = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        digest = (digest * _MIX & _MASK) ^ word
    if whole < length:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    digest = (digest ^ digest >> 13) * _MIX & _MASK
    return digest ^ digest >> 15


def pack(
    validated: ValidatedLines,
    tenant: str,
    received_us: int,
    partitions: int,
    rejected_line_bytes_max: int,
    *,
    signs: list[Sign] | None = None,
) -> Iterator[PlacedFrame]:
    """Pack lines that arrived together for a log with this number of partitions."""
    header = FrameHeader(
        kind="events",
        tenant=tenant,
        received_us=received_us,
        counts={},
        partitions=partitions,
        signs=signs,
    )
    yield from _pack(header, validated)
    if validated.rejections:
        rejected = []
        for line, reason, raw, source in validated.rejections:
            stored, truncated = raw[:rejected_line_bytes_max], len(raw) > rejected_line_bytes_max
            rejected.append(RejectedLine(line, reason, stored, source or "", truncated))
        counts = _count(line.source for line in rejected)
        header = msgspec.structs.replace(header, kind="rejected", counts=counts, signs=None)
        body = msgspec.json.Encoder().encode_lines(rejected).rstrip(b"\n")
        yield REJECTED_PARTITION, Frame(header, body)


def repartition(frame: Frame, current: int, partitions: int) -> Iterator[PlacedFrame]:
    """Place the events anew. Unreadable lines stay where they are; the writer reports them."""
    header = msgspec.structs.replace(frame.header, partitions=partitions)
    placed = [(line, _origin(line)) for line in frame.body.split(b"\n")]
    known = [(line, origin) for line, origin in placed if origin]
    lines = [line for line, _ in known]
    sessions = [origin.session_id for _, origin in known]
    sources = [origin.source for _, origin in known]
    yield from _pack(header, ValidatedLines(lines, sessions, sources, []))
    if unreadable := [line for line, origin in placed if not origin]:
        yield current, _frame(header, unreadable, [None] * len(unreadable))


def encode_values(frame: Frame, bytes_max: int) -> list[bytes]:
    """Encode a frame, into several values where one would be too large."""
    value = encode_frame(frame)
    lines = frame.body.split(b"\n") if len(value) > bytes_max else []
    if len(lines) < 2:
        return [value]
    middle = len(lines) // 2
    values = []
    for half in (lines[:middle], lines[middle:]):
        rejected = decode_rejected(b"\n".join(half)) if frame.header.kind == "rejected" else None
        sources = [o.source if o else None for o in rejected or map(_origin, half)]
        values += encode_values(_frame(frame.header, half, sources), bytes_max)
    return values


def _pack(header: FrameHeader, validated: ValidatedLines) -> Iterator[PlacedFrame]:
    lines, sessions, sources = validated.lines, validated.sessions, validated.sources
    if header.partitions == 1:
        if lines:
            yield 0, _frame(header, lines, sources)
        return
    positions: defaultdict[int, list[int]] = defaultdict(list)
    for position, session_id in enumerate(sessions):
        positions[partition_of(session_id, header.partitions)].append(position)
    for partition, own in positions.items():
        yield partition, _frame(header, [lines[i] for i in own], [sources[i] for i in own])


def _frame(header: FrameHeader, lines: list[bytes], sources: Sequence[str | None]) -> Frame:
    return Frame(msgspec.structs.replace(header, counts=_count(sources)), b"\n".join(lines))


def _count(sources: Iterable[str | None]) -> dict[str, int]:
    return {source or "": count for source, count in Counter(sources).items()}


class _Origin(msgspec.Struct):
    """The fields by which an event is placed and counted."""

    session_id: str
    source: str | None = None


_origin_decoder = msgspec.json.Decoder(_Origin)


def _origin(line: bytes) -> _Origin | None:
    try:
        return _origin_decoder.decode(line)
    except (ValueError, RecursionError):
        return None


class FrameDecoder(msgspec.Struct, frozen=True):
    partitions: int
    event_bytes_max: int
    rejected_line_bytes_max: int
    #: Redacts the lines of a tenant before validation; returns them and the refused ones.
    redact: Redact | None = None

    def placed(self, value: bytes, partition: int) -> Iterator[PlacedFrame]:
        """Decode and validate a value; each frame comes with the partition where it belongs."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from self._validate(frame)
        elif frame.header.kind == "rejected" or frame.header.partitions == self.partitions:
            yield partition, frame
        else:
            yield from repartition(frame, partition, self.partitions)

    def frames(self, value: bytes) -> Iterator[Frame]:
        """Decode and validate a value, for a reader to whom partitions do not matter."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from (validated for _, validated in self._validate(frame))
        else:
            yield frame

    def _validate(self, frame: Frame) -> Iterator[PlacedFrame]:
        header, tenant, reason = frame.header, frame.header.tenant, ""
        if not is_tenant(tenant):
            tenant, reason = TENANT_DEFAULT, "its tenant is empty, long or unprintable"
        elif header.schema_version > SCHEMA_VERSION:
            known = f"this Penstock knows those up to {SCHEMA_VERSION}"
            reason = f"its schema version is {header.schema_version}, {known}"
        place = (tenant, header.received_us, self.partitions, self.rejected_line_bytes_max)
        if reason:
            [kept], _ = (
                ([frame.body], []) if self.redact is None else self.redact([frame.body], tenant)
            )
            rejection = Rejection(1, reason, kept, None)
            yield from pack(ValidatedLines([], [], [], [rejection]), *place)
            return
        for number, sent in split_body([frame.body], _CHUNK_BYTES):
            lines, refused = (sent, []) if self.redact is None else self.redact(sent, tenant)
            validated = validate_lines(lines, number, self.event_bytes_max)
            validated.rejections.extend(one._replace(line=number + one.line) for one in refused)
            yield from pack(validated, *place)


def _decode(value: bytes) -> Frame:
    """Decode a value. One that is no frame or names no tenant is taken for unjudged lines."""
    try:
        frame = decode_frame(value)
    except ValueError:
        frame = decode_frame(encode_unjudged(value, TENANT_DEFAULT, 0, SCHEMA_VERSION))
    if not is_tenant(frame.header.tenant):
        frame.header.kind = "unjudged"
    return frame
