"""The bytes of a local log file: blocks with checksums, each written and synced as one.

A block that does not check out can only be the last one, torn by a crash before its sync
returned: nothing is written behind a block before that. Anything valid behind it means damage.

A header checks out only in its own log and at its own offset: neither bytes that look like a
block inside a value nor what a disk held before is taken for one."""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.directories import sync_directory
from penstock.eventlog import Bounds, Entry
from penstock.eventlog.errors import LogCorrupt

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


_POSITION_BITS = 32


_POSITION_MASK = (1 << _POSITION_BITS) - 1


_FIRST_FILE = 1


def make_offset(file: int, position: int) -> int:
    return file << _POSITION_BITS | position


def split_offset(offset: int) -> tuple[int, int]:
    return offset >> _POSITION_BITS, offset & _POSITION_MASK


class _Tail:
    """One partition: its files, and up to which offset they are known to be good and on disk.

    That is one number, so that readers need no lock to look at it. They take nothing beyond it:
    what lies there may be torn, or taken back by who writes it."""

    def __init__(self, path: Path, log_id: str, file_bytes_max: int) -> None:
        self._path = path
        self._log = zlib.crc32(log_id.encode())
        self._file_bytes_max = min(file_bytes_max, _POSITION_MASK)
        self._durable = make_offset(_FIRST_FILE, 0)
        self._descriptor = -1
        self._written = 0
        self._sealed_bytes = 0
        self._writer_lock = -1
        path.mkdir(exist_ok=True)

    # Appending; the caller holds the log's lock

    def catch_up(self) -> None:
        """Learn what other processes appended, and cut off what one of them left torn."""
        try:
            if self._descriptor < 0 or self._is_rolled():
                self._open(self._newest())
            file, good = split_offset(self._durable)
            if os.fstat(self._descriptor).st_size != good:
                good = self._check(good)
                os.ftruncate(self._descriptor, good)
                os.fdatasync(self._descriptor)
                self._durable = make_offset(file, good)
        except OSError:
            self.close()  # the next look is at the disk afresh
            raise
        self._written = good

    def write(self, block: bytearray) -> None:
        file, good = split_offset(self._durable)
        if good and good + len(block) > self._file_bytes_max:
            self._open(file + 1)
        seal(block, self._log, self._durable)
        view = memoryview(block)
        while view:
            count = os.pwrite(self._descriptor, view, self._written)
            view, self._written = view[count:], self._written + count

    def sync(self) -> None:
        os.fdatasync(self._descriptor)
        file, _ = split_offset(self._durable)
        self._durable = make_offset(file, self._written)

    def abandon(self) -> None:
        """After a failed write or sync the descriptor is not trusted again: a later sync could
        succeed without the lost pages. What was good stays; appends go on in a new file."""
        file, good = split_offset(self._durable)
        if self._written == good:
            return
        try:
            self._open(file)
            os.ftruncate(self._descriptor, good)
            os.fdatasync(self._descriptor)
            if good:
                self._open(file + 1)
        except OSError:
            self.close()  # the next append looks at the disk afresh

    def roll_if_before(self, before: int) -> None:
        """Begin a new file if all that there is lies before this offset."""
        file, good = split_offset(self._durable)
        if good and self._durable <= before:
            self._open(file + 1)

    def covered(self, before: int) -> list[Path]:
        """The files that hold nothing at or beyond this offset, without the newest; the
        first one first, so that at no time a file is missing between others."""
        return [
            self._name(one)
            for one in self._files()[:-1]
            if make_offset(one, self._size(one)) <= before
        ]

    def bytes_held(self) -> int:
        return self._sealed_bytes + split_offset(self._durable)[1]

    def recount(self) -> None:
        file, _ = split_offset(self._durable)
        self._sealed_bytes = sum(self._size(one) for one in self._files() if one < file)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_rolled(self) -> bool:
        """Whether another process began a newer file; the one here may be gone since."""
        file, _ = split_offset(self._durable)
        return self._name(file + 1).exists() or os.fstat(self._descriptor).st_nlink == 0

    def _newest(self) -> int:
        file, good = split_offset(self._durable)
        newest = max(self._files(), default=_FIRST_FILE)
        if newest < file:
            raise LogCorrupt(path=self._name(file), position=good, why="the file is gone")
        return newest

    def _open(self, file: int) -> None:
        """A fresh descriptor of this file, which is the newest from now on."""
        descriptor = os.open(self._name(file), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            sync_directory(self._path)  # whoever made the file may have died before
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._durable = max(self._durable, make_offset(file, 0))
        _, self._written = split_offset(self._durable)
        self.recount()

    def _check(self, start: int) -> int:
        """The end of the last good block. Raises LogCorrupt when good blocks lie behind a bad."""
        file, good = split_offset(self._durable)
        size = os.fstat(self._descriptor).st_size
        if size < good:
            raise LogCorrupt(
                path=self._name(file), position=size, why="it is shorter than it was before"
            )
        data = os.pread(self._descriptor, size - start, start)
        offset = end = make_offset(file, start)
        for block in scan(data, self._log, offset):
            end = block.next_offset
        if valid_block_behind(data, end - offset, self._log, offset):
            raise LogCorrupt(
                path=self._name(file),
                position=split_offset(end)[1],
                why="its checksum does not match, and intact events lie behind it",
            )
        return split_offset(end)[1]

    # Reading; needs no lock

    def is_behind(self) -> bool:
        """Whether there is something beyond what is known to be durable."""
        file, good = split_offset(self._durable)
        try:
            size = self._name(file).stat().st_size
        except FileNotFoundError:
            return True
        return size != good or self._name(file + 1).exists()

    def read(self, offset: int, bytes_max: int) -> list[Entry]:
        newest, good = split_offset(self._durable)
        file, position = split_offset(offset)
        entries: list[Entry] = []
        for one in self._files():
            if not file <= one <= newest:
                continue
            found, ended = self._read_file(
                one,
                position if one == file else 0,
                good if one == newest else None,
                bytes_max,
            )
            entries += found
            bytes_max -= sum(entry.next_offset - entry.offset for entry in found)
            if not ended or bytes_max <= 0:
                break
        return entries

    def _read_file(
        self, file: int, start: int, end: int | None, bytes_max: int
    ) -> tuple[list[Entry], bool]:
        """Entries from `start` on, and whether those are all up to the `end` of the file.
        Raises LogCorrupt if the first one is damaged."""
        try:
            descriptor = os.open(self._name(file), os.O_RDONLY)
        except FileNotFoundError:
            return [], True  # trimmed meanwhile
        try:
            end = os.fstat(descriptor).st_size if end is None else end
            if start >= end:
                return [], True
            data = _pread_block(descriptor, start, end, bytes_max)
        finally:
            os.close(descriptor)
        entries = [
            Entry(block.offset, block.next_offset, block.values())
            for block in scan(data, self._log, make_offset(file, start))
        ]
        if not entries:
            raise LogCorrupt(
                path=self._name(file), position=start, why="its checksum does not match"
            )
        return entries, entries[-1].next_offset == make_offset(file, end)

    def bounds(self) -> Bounds:
        files = self._files()
        first = make_offset(files[0], 0) if files else self._durable
        return Bounds(first, max(first, self._durable))

    def bytes_beyond(self, offset: int) -> int:
        file, position = split_offset(offset)
        end_file, end_position = split_offset(self._durable)
        between = sum(self._size(one) for one in self._files() if file <= one < end_file)
        return max(0, between + end_position - position)

    def hold(self) -> bool:
        if self._writer_lock >= 0:
            return True
        descriptor = os.open(self._path / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._writer_lock = descriptor
        return True

    def let_go(self) -> None:
        if self._writer_lock >= 0:
            os.close(self._writer_lock)
            self._writer_lock = -1

    def _files(self) -> list[int]:
        found = (path for path in self._path.iterdir() if path.suffix == ".log")
        return sorted(int(path.stem) for path in found if path.stem.isdecimal())

    def _name(self, file: int) -> Path:
        return self._path / f"{file:010d}.log"

    def _size(self, file: int) -> int:
        try:
            return self._name(file).stat().st_size
        except FileNotFoundError:
            return 0


def _pread_block(descriptor: int, start: int, end: int, bytes_max: int) -> bytes:
    """About `bytes_max`, but never less than the first block."""
    at_least = max(bytes_max, HEADER_BYTES)
    data = os.pread(descriptor, min(at_least, end - start), start)
    need = min(first_bytes(data), end - start)
    return os.pread(descriptor, need, start) if need > len(data) else data
