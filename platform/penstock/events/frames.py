"""A value of the event log: lines that arrived together, with what the server knows of them.

The lines stay as JSON, one a line: what the gateway writes is what another producer may write.
"""

import struct
from typing import Literal

import msgspec

from penstock.events.envelope import SCHEMA_VERSION

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
