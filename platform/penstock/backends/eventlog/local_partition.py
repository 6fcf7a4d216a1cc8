"""One partition of a local log: its files, and the blocks in them.

A block is a checksummed group of values, written and synced as one. Only the last one can be torn
by a crash: its beginning is there, and it is cut off. All else that is broken is damage. Its bytes
stay where they are, a copy is set aside, and what is intact behind them is read. A header is valid
only in its own log and at its own offset, so that nothing else on the disk is taken for a block."""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.backends.eventlog.log import DamagedPart, Entry, LogCorrupt, OffsetBounds
from penstock.core.files import DIRECTORY_MODE, sync_directory

_POSITION_BITS = 32
_POSITION_MASK = (1 << _POSITION_BITS) - 1
_FIRST_FILE = 1
#: The folder of copies of damaged parts, for a person: named by file and position.
_DAMAGED = "damaged"


def make_offset(file: int, position: int) -> int:
    return file << _POSITION_BITS | position


def split_offset(offset: int) -> tuple[int, int]:
    return offset >> _POSITION_BITS, offset & _POSITION_MASK


class LocalPartition:
    """The files of one partition. One offset says how far they are intact and on disk, so readers
    need no lock. What lies beyond it may be torn, or taken back."""

    def __init__(self, path: Path, log_id: str, file_bytes_max: int) -> None:
        self._path = path
        self._log = zlib.crc32(log_id.encode())
        self._file_bytes_max = min(file_bytes_max, _POSITION_MASK)
        self._durable = make_offset(_FIRST_FILE, 0)
        self._descriptor = -1
        self._written = 0
        self._sealed_bytes = 0
        self._writer_lock = -1
        path.mkdir(DIRECTORY_MODE, exist_ok=True)

    # Appending; the caller holds the log's lock

    def catch_up(self) -> None:
        """Learn what other processes appended, and cut off what one of them left torn."""
        try:
            file, good = split_offset(self._durable)
            is_newest = self._descriptor >= 0 and not self._name(file + 1).exists()
            if not is_newest or os.fstat(self._descriptor).st_nlink == 0:  # gone, or not the last
                newest = max(self._files(), default=_FIRST_FILE)
                if newest < file:
                    raise LogCorrupt(path=self._name(file), position=good, why="the file is gone")
                self._open(newest)
                file, good = split_offset(self._durable)
            if os.fstat(self._descriptor).st_size != good:
                good = self._check(good)
                os.ftruncate(self._descriptor, good)
                os.fdatasync(self._descriptor)
                self._durable = make_offset(file, good)
        except OSError:
            self.close()  # the next call looks at the disk afresh
            raise
        self._written = good

    def write(self, block: bytearray) -> None:
        file, good = split_offset(self._durable)
        if good and good + len(block) > self._file_bytes_max:
            self._open(file + 1)
        # The seal makes the block valid at this offset of this log, and nowhere else.
        _SEAL.pack_into(block, _HEADER.size, _seal_of(memoryview(block), self._log, self._durable))
        view = memoryview(block)
        while view:
            count = os.pwrite(self._descriptor, view, self._written)
            view, self._written = view[count:], self._written + count

    def sync(self) -> None:
        os.fdatasync(self._descriptor)
        file, _ = split_offset(self._durable)
        self._durable = make_offset(file, self._written)

    def abandon(self) -> None:
        """Take back a failed write and go on in a new file. A later sync of the same descriptor
        could succeed without the lost pages."""
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

    def covered(self, before: int, *, roll: bool) -> list[Path]:
        """List files, but not the newest, that hold nothing at or beyond this offset. With `roll` a
        new file begins if all are covered."""
        newest, good = split_offset(self._durable)
        if roll and good and self._durable <= before:
            self._open(newest + 1)
        older = self._files()[:-1]
        return [self._name(f) for f in older if make_offset(f, self._size(f)) <= before]

    def roll(self) -> int:
        """Begin a new file. Returns the end of the one before."""
        self.catch_up()
        end = self._durable
        newest, good = split_offset(end)
        if good:
            self._open(newest + 1)
        return end

    def bytes_held(self) -> int:
        return self._sealed_bytes + split_offset(self._durable)[1]

    def recount(self) -> None:
        newest, _ = split_offset(self._durable)
        self._sealed_bytes = sum(self._size(file) for file in self._files() if file < newest)

    def hold(self) -> bool:
        """Try to become the partition's writer."""
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

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, file: int) -> None:
        """Open a file, which becomes the newest."""
        descriptor = os.open(self._name(file), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            sync_directory(self._path)  # the process that made the file may have died before
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._durable = max(self._durable, make_offset(file, 0))
        _, self._written = split_offset(self._durable)
        self.recount()

    def _check(self, start: int) -> int:
        """Find the end of the last intact block. Raises LogCorrupt where the file was cut."""
        file, good = split_offset(self._durable)
        size = os.fstat(self._descriptor).st_size
        if size < good:
            why = "it is shorter than it was before"
            raise LogCorrupt(path=self._name(file), position=size, why=why)
        data = os.pread(self._descriptor, size - start, start)
        offset = end = make_offset(file, start)
        for entry in _entries_in(data, self._log, offset):
            if not entry.values:
                self._set_aside(entry, data[entry.offset - offset : entry.next_offset - offset])
            end = entry.next_offset
        tail = data[end - offset :]
        if not tail or _is_torn(tail, self._log, end):
            return split_offset(end)[1]
        self._set_aside(Entry(end, offset + len(data), []), tail)
        return size  # it may have been acknowledged, and the lake may cover it: its place stays

    def _set_aside(self, damaged: Entry, content: bytes) -> None:
        """Keep a copy of damaged bytes, before anything else happens to them."""
        file, position = split_offset(damaged.offset)
        folder = self._path / _DAMAGED
        path = folder / f"{file:010d}-{position}"
        if not path.exists():
            folder.mkdir(DIRECTORY_MODE, exist_ok=True)
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_bytes(content)
            unfinished.replace(path)

    def damage(self) -> list[DamagedPart]:
        folder = self._path / _DAMAGED
        paths = sorted(folder.glob("*-*[0-9]")) if folder.exists() else []
        return [DamagedPart(str(path), path.stat().st_size) for path in paths]

    # Reading; needs no lock

    def is_behind(self) -> bool:
        """Whether anything lies beyond the durable part that this process knows."""
        file, good = split_offset(self._durable)
        try:
            size = self._name(file).stat().st_size
        except FileNotFoundError:
            return True
        return size != good or self._name(file + 1).exists()

    def read(self, offset: int, bytes_max: int) -> list[Entry]:
        newest, good = split_offset(self._durable)
        first, position = split_offset(offset)
        entries: list[Entry] = []
        for file in (file for file in self._files() if first <= file <= newest):
            start, end = position if file == first else 0, good if file == newest else None
            more, complete = self._read_file(file, start, end, bytes_max)
            entries += more
            bytes_max -= sum(entry.next_offset - entry.offset for entry in more)
            if not complete or bytes_max <= 0:
                break
        return entries

    def _read_file(
        self, file: int, start: int, end: int | None, bytes_max: int
    ) -> tuple[list[Entry], bool]:
        """Read entries from `start`, and whether they reach the `end`. A damaged part is an entry
        without values."""
        try:
            descriptor = os.open(self._name(file), os.O_RDONLY)
        except FileNotFoundError:
            return [], True  # trimmed meanwhile
        try:
            end = os.fstat(descriptor).st_size if end is None else end
            if start >= end:
                return [], True
            data = os.pread(descriptor, min(max(bytes_max, HEADER_BYTES), end - start), start)
            if len(data) >= HEADER_BYTES and data.startswith(_MAGIC):
                first_bytes = min(HEADER_BYTES + _HEADER.unpack_from(data)[1], end - start)
                if first_bytes > len(data):  # one block at least is read in whole
                    data = os.pread(descriptor, first_bytes, start)
            offset = make_offset(file, start)
            entries = list(_entries_in(data, self._log, offset))
            if not entries:
                data = os.pread(descriptor, end - start, start)
                entries = list(_entries_in(data, self._log, offset))
        finally:
            os.close(descriptor)
        if not entries:  # nothing behind is intact
            entries = [Entry(offset, make_offset(file, end), [])]
        for entry in entries:
            if not entry.values:
                self._set_aside(entry, data[entry.offset - offset : entry.next_offset - offset])
        return entries, entries[-1].next_offset == make_offset(file, end)

    def bounds(self) -> OffsetBounds:
        files = self._files()
        first = make_offset(files[0], 0) if files else self._durable
        return OffsetBounds(first, max(first, self._durable))

    def bytes_beyond(self, offset: int) -> int:
        first, position = split_offset(offset)
        newest, end = split_offset(self._durable)
        between = sum(self._size(file) for file in self._files() if first <= file < newest)
        return max(0, between + end - position)

    def _files(self) -> list[int]:
        paths = (path for path in self._path.iterdir() if path.suffix == ".log")
        return sorted(int(path.stem) for path in paths if path.stem.isdecimal())

    def _name(self, file: int) -> Path:
        return self._path / f"{file:010d}.log"

    def _size(self, file: int) -> int:
        try:
            return self._name(file).stat().st_size
        except FileNotFoundError:
            return 0


# Blocks

_HEADER = struct.Struct("<4sIII")  # magic, bytes of the body, values in it, checksum of the body
_SEAL = struct.Struct("<I")  # checksum of the header and of its offset
_LENGTH = struct.Struct("<I")
_MAGIC = b"PSK1"
HEADER_BYTES = _HEADER.size + _SEAL.size


def encode_block(values: Sequence[bytes]) -> bytearray:
    """Encode a block without its seal, which `LocalPartition.write` adds."""
    parts: list[bytes] = [bytes(HEADER_BYTES)]
    for value in values:
        parts += (_LENGTH.pack(len(value)), value)
    block = bytearray().join(parts)
    body = memoryview(block)[HEADER_BYTES:]
    _HEADER.pack_into(block, 0, _MAGIC, len(body), len(values), zlib.crc32(body))
    return block


def _seal_of(block: memoryview, log: int, offset: int) -> int:
    return zlib.crc32(offset.to_bytes(8, "little"), zlib.crc32(block[: _HEADER.size], log))


def _entries_in(data: bytes, log: int, offset: int) -> Iterator[Entry]:
    """Read the blocks in data that begins at `offset`, up to the last intact one. A damaged part
    between them is an entry without values."""
    view = memoryview(data)
    start = begin = 0
    while begin >= 0:
        if (entry := _entry_at(view, begin, log, offset)) is not None:
            if begin > start:
                yield Entry(offset + start, entry.offset, [])
            yield entry
            start = begin = entry.next_offset - offset
        else:
            begin = data.find(_MAGIC, begin + 1)


def _is_torn(tail: bytes, log: int, offset: int) -> bool:
    """Whether it is the beginning of a block whose other bytes were never written."""
    written = tail.rstrip(b"\0")
    if len(written) < HEADER_BYTES:
        return _MAGIC.startswith(written[: len(_MAGIC)])
    length, (seal,) = _HEADER.unpack_from(tail)[1], _SEAL.unpack_from(tail, _HEADER.size)
    sealed: bool = seal == _seal_of(memoryview(tail), log, offset)
    return sealed and HEADER_BYTES + length > len(tail)


def _entry_at(view: memoryview, start: int, log: int, offset: int) -> Entry | None:
    """Read the block at `start`; None if there is no intact one."""
    if len(view) - start < HEADER_BYTES:
        return None
    magic, length, count, checksum = _HEADER.unpack_from(view, start)
    (seal,) = _SEAL.unpack_from(view, start + _HEADER.size)
    end = start + HEADER_BYTES + length
    if magic != _MAGIC or end > len(view) or seal != _seal_of(view[start:], log, offset + start):
        return None
    body = view[start + HEADER_BYTES : end]
    if zlib.crc32(body) != checksum:
        return None
    values, position = [], 0
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        values.append(bytes(body[position : position + size]))
        position += size
    return Entry(offset + start, offset + end, values)
