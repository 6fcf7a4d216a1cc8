"""One partition of a local log: its files, and the blocks in them.

A block is a checksummed group of values, written and synced as one. Only the last one can be torn
by a crash: its beginning is there, and the next appender cuts it off. All else that is broken is
damage. Its bytes stay where they are, a copy is set aside, and what is intact behind them is read.
A header is valid only in its own log and at its own offset, so that nothing else on the disk is
taken for a block."""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

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
    """The files of one partition. Readers need no lock: they stop at the first torn block of the
    newest file. Appenders alone, who hold the log's lock, change anything."""

    def __init__(self, path: Path, log_id: str, file_bytes_max: int) -> None:
        self._path = path
        self._log = zlib.crc32(log_id.encode())
        self._file_bytes_max = min(file_bytes_max, _POSITION_MASK)
        #: How far this process knows the blocks to be on disk, and how far a reader found them.
        self._durable = self._seen = make_offset(_FIRST_FILE, 0)
        #: The newest file, and the bytes in those before it when it became that.
        self._before = 0, 0
        self._descriptor = -1
        self._written = 0
        self._writer_lock = -1

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
                good, is_damaged = self._check(good)
                os.ftruncate(self._descriptor, good)
                os.fdatasync(self._descriptor)
                self._durable = make_offset(file, good)
                if is_damaged:  # readers pass it once the file is not the newest any more
                    self._open(file + 1)
                    good = 0
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

    def bytes_held(self) -> int:
        """Count bytes up to the end, at most too many: some may have been trimmed since."""
        newest, good = split_offset(self._durable)
        if self._before[0] != newest:
            self._before = newest, sum(self._size(file) for file in self._files() if file < newest)
        return self._before[1] + good

    def abandon(self) -> None:
        """Take back a failed write and go on in a new file. A later sync of the same descriptor
        could succeed without the lost pages, and a reader may have seen the block at its place."""
        file, good = split_offset(self._durable)
        if self._written == good:
            return
        try:
            os.ftruncate(self._descriptor, good)
            self._open(file + 1)
        except OSError:
            self.close()  # the next append looks at the disk afresh

    def roll(self) -> int:
        """Begin a new file. Returns the end of the one before."""
        self.catch_up()
        end = self._durable
        newest, good = split_offset(end)
        if good:
            self._open(newest + 1)
        return end

    # Holding; the lock is its own

    @property
    def is_held(self) -> bool:
        return self._writer_lock >= 0

    def hold(self) -> bool:
        """Try to become the partition's writer."""
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

    def _check(self, start: int) -> tuple[int, bool]:
        """Find the end of the last block, and whether it is damaged. Raises LogCorrupt where the
        file was cut."""
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
            return split_offset(end)[1], False
        self._set_aside(Entry(end, offset + len(data), []), tail)
        return size, True  # it may have been acknowledged, and the lake may cover it

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

    def look(self) -> None:
        """Learn how far the blocks reach, by their headers. The last one may not be on disk yet, or
        be taken back."""
        file, position = split_offset(max(self._seen, self._durable))
        newest = max(self._files(), default=0)
        if newest < file and position:
            raise LogCorrupt(path=self._name(file), position=position, why="the file is gone")
        if newest > file:
            file, position = newest, 0
        try:
            descriptor = os.open(self._name(file), os.O_RDONLY)
        except FileNotFoundError:
            return  # nothing was appended yet, or all of it was trimmed meanwhile
        try:
            size = os.fstat(descriptor).st_size
            while size - position >= HEADER_BYTES:
                header = os.pread(descriptor, HEADER_BYTES, position)
                end = position + _sealed_bytes(header, self._log, make_offset(file, position))
                if not position < end <= size:
                    break
                position = end
            if size - position >= HEADER_BYTES:  # torn, or damaged with others behind it
                rest = os.pread(descriptor, size - position, position)
                for entry in _entries_in(rest, self._log, make_offset(file, position)):
                    position = split_offset(entry.next_offset)[1]
        finally:
            os.close(descriptor)
        self._seen = max(self._seen, make_offset(file, position))

    def secure(self, offset: int) -> None:
        """Return once the blocks before this offset are on disk. Those with another one behind them
        are: appenders sync, or take back, each before the next."""
        file, position = split_offset(offset)
        if offset <= self._durable or self._size(file) > position or file < max(self._files()):
            return
        descriptor = os.open(self._name(file), os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, offset: int, bytes_max: int) -> list[Entry]:
        first, position = split_offset(offset)
        files = [file for file in self._files() if file >= first]
        entries: list[Entry] = []
        for file in files:
            start = position if file == first else 0
            more, complete = self._read_file(file, start, bytes_max, is_newest=file == files[-1])
            entries += more
            bytes_max -= sum(entry.next_offset - entry.offset for entry in more)
            if not complete or bytes_max <= 0:
                break
        return entries

    def _read_file(
        self, file: int, start: int, bytes_max: int, *, is_newest: bool
    ) -> tuple[list[Entry], bool]:
        """Read entries from `start`, and whether they reach the end. A damaged part is an entry
        without values."""
        try:
            descriptor = os.open(self._name(file), os.O_RDONLY)
        except FileNotFoundError:
            return [], True  # trimmed meanwhile
        try:
            end = os.fstat(descriptor).st_size
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
        if not entries and is_newest and offset >= self._durable:
            return [], False  # it is being written, or the next appender cuts it off
        if not entries:  # nothing behind is intact
            entries = [Entry(offset, make_offset(file, end), [])]
        for entry in entries:
            if not entry.values:
                self._set_aside(entry, data[entry.offset - offset : entry.next_offset - offset])
        return entries, entries[-1].next_offset == make_offset(file, end)

    def bounds(self) -> OffsetBounds:
        files = self._files()
        first = make_offset(files[0], 0) if files else self._seen
        return OffsetBounds(first, max(first, self._seen))

    def covered(self, before: int) -> list[Path]:
        """List files, but not the newest, that hold nothing at or beyond this offset."""
        older = self._files()[:-1]
        return [self._name(f) for f in older if make_offset(f, self._size(f)) <= before]

    def bytes_on_disk(self) -> int:
        return sum(map(self._size, self._files()))

    def bytes_beyond(self, offset: int) -> int:
        first, position = split_offset(offset)
        newest, end = split_offset(self._seen)
        sizes = {file: self._size(file) for file in self._files() if first <= file < newest}
        sizes[newest] = end
        return max(0, sum(sizes.values()) - (position if first in sizes else 0))

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

_HEADER = struct.Struct("<4sIIQ")  # magic, bytes of the body, values in it, checksum of the body
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
    _HEADER.pack_into(block, 0, _MAGIC, len(body), len(values), xxh3_64_intdigest(body))
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
    return _sealed_bytes(tail, log, offset) > len(tail)


def _sealed_bytes(header: bytes | memoryview, log: int, offset: int) -> int:
    """The bytes of the block with this header; none if it is no header of this place."""
    magic, length, _, _ = _HEADER.unpack_from(header)
    (seal,) = _SEAL.unpack_from(header, _HEADER.size)
    is_sealed = magic == _MAGIC and seal == _seal_of(memoryview(header), log, offset)
    return HEADER_BYTES + int(length) if is_sealed else 0


def _entry_at(view: memoryview, start: int, log: int, offset: int) -> Entry | None:
    """Read the block at `start`; None if there is no intact one."""
    if len(view) - start < HEADER_BYTES:
        return None
    end = start + _sealed_bytes(view[start : start + HEADER_BYTES], log, offset + start)
    if not start < end <= len(view):
        return None
    _, _, count, checksum = _HEADER.unpack_from(view, start)
    body = view[start + HEADER_BYTES : end]
    if xxh3_64_intdigest(body) != checksum:
        return None
    values, position = [], 0
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        values.append(bytes(body[position : position + size]))
        position += size
    return Entry(offset + start, offset + end, values)
