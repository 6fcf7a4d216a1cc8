"""The bytes of a local log file: blocks with checksums, each written and synced as one.

A block that does not check out can only be the last one, torn by a crash before its sync
returned: nothing is written behind a block before that. Anything valid behind it means damage.

A header checks out only in its own log and at its own offset: neither bytes that look like a
block inside a value nor what a disk held before is taken for one.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_HEADER = struct.Struct("<4sIII")  # magic, bytes of the body, values in it, checksum of the body
_SEAL = struct.Struct("<I")  # checksum of the header and of where it stands
_PLACE = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
MAGIC = b"PSK1"
HEADER_BYTES = _HEADER.size + _SEAL.size


class Block(NamedTuple):
    """A block that checked out, and the offsets where it begins and ends."""

    offset: int
    next_offset: int
    values_count: int
    body: memoryview

    def values(self) -> list[bytes]:
        values, position = [], 0
        for _ in range(self.values_count):
            (length,) = _LENGTH.unpack_from(self.body, position)
            position += _LENGTH.size
            values.append(bytes(self.body[position : position + length]))
            position += length
        return values


def encode(values: Sequence[bytes]) -> bytearray:
    """A block that `seal` puts in its place."""
    parts: list[bytes] = [bytes(HEADER_BYTES)]
    for value in values:
        parts += (_LENGTH.pack(len(value)), value)
    block = bytearray().join(parts)
    body = memoryview(block)[HEADER_BYTES:]
    _HEADER.pack_into(block, 0, MAGIC, len(body), len(values), zlib.crc32(body))
    return block


def seal(block: bytearray, log: int, offset: int) -> None:
    """Make the block valid at this offset of this log, and nowhere else."""
    _SEAL.pack_into(block, _HEADER.size, _seal_of(memoryview(block), log, offset))


def scan(data: bytes, log: int, offset: int) -> Iterator[Block]:
    """Blocks one behind the other in what stands at `offset`, up to the first that is
    incomplete or damaged."""
    view = memoryview(data)
    start = 0
    while (block := _block_at(view, start, log, offset)) is not None:
        yield block
        start = block.next_offset - offset


def first_bytes(data: bytes) -> int:
    """How long the first block says it is, header included; 0 if that cannot be read."""
    if len(data) < HEADER_BYTES:
        return 0
    magic, length, _, _ = _HEADER.unpack_from(data)
    return HEADER_BYTES + int(length) if magic == MAGIC else 0


def valid_block_behind(data: bytes, start: int, log: int, offset: int) -> bool:
    """Whether an intact block lies anywhere behind the damaged one at `start`."""
    view = memoryview(data)
    found = data.find(MAGIC, start + 1)
    while found >= 0:
        if _block_at(view, found, log, offset) is not None:
            return True
        found = data.find(MAGIC, found + 1)
    return False


def _block_at(view: memoryview, start: int, log: int, offset: int) -> Block | None:
    if len(view) - start < HEADER_BYTES:
        return None
    magic, length, count, checksum = _HEADER.unpack_from(view, start)
    (seal_found,) = _SEAL.unpack_from(view, start + _HEADER.size)
    end = start + HEADER_BYTES + length
    if magic != MAGIC or end > len(view):
        return None
    if seal_found != _seal_of(view[start:], log, offset + start):
        return None
    body = view[start + HEADER_BYTES : end]
    if zlib.crc32(body) != checksum:
        return None
    return Block(offset + start, offset + end, count, body)


def _seal_of(block: memoryview, log: int, offset: int) -> int:
    return zlib.crc32(_PLACE.pack(offset), zlib.crc32(block[: _HEADER.size], log))
