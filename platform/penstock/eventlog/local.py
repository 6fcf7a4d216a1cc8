"""The embedded event log: files in a directory, safe for several processes.

    log/log.json              its id and the number of partitions
    log/append.lock           held while appending
    log/p-0000/writer.lock    held by the process that takes its events into the lake
    log/p-0000/0000000001.log blocks; rolled when large, removed when the lake covers them

An offset is the number of the file and the position in it.
"""

import errno
import fcntl
import json
import math
import os
import threading
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.directories import make_directory, sync_directory
from penstock.errors import Backlogged
from penstock.eventlog import Bounds, Entry, Held, blocks
from penstock.eventlog.errors import LogCorrupt, LogShapeChanged, LogUnwritable

_POSITION_BITS = 32
_POSITION_MASK = (1 << _POSITION_BITS) - 1
_FIRST_FILE = 1
_VERSION = 1
#: An append by another process is seen this much later at most.
_LOOK_SECONDS = 0.02
#: The disk does not fill faster than the reserve allows for.
_DISK_LOOK_SECONDS = 0.1


def make_offset(file: int, position: int) -> int:
    return file << _POSITION_BITS | position


def split_offset(offset: int) -> tuple[int, int]:
    return offset >> _POSITION_BITS, offset & _POSITION_MASK


class LocalEventLog:
    """An EventLog in a directory; see the module for its files."""

    #: A block's length has 32 bits; memory is short long before.
    value_bytes_max = 1 << 30
    expires = False

    def __init__(
        self,
        path: Path,
        *,
        partitions: int = 1,
        file_bytes_max: int,
        bytes_max: int,
        disk_reserve_bytes: int = 0,
    ) -> None:
        """Opens the log, makes it if there is none, and cuts torn tails off.
        Raises LogUnwritable, LogCorrupt, LogShapeChanged."""
        self._path = path
        self._bytes_max = bytes_max
        self._disk_reserve_bytes = disk_reserve_bytes
        self._mutex = threading.Lock()
        self._appended = threading.Condition()
        self._lock_file = -1
        self._disk_looked_s, self._disk_free_then = -math.inf, 0
        self._tails: list[_Tail] = []
        with ExitStack() as opened:
            opened.callback(self.close)
            with self._explained():
                make_directory(path)
                self._lock_file = os.open(path / "append.lock", os.O_RDWR | os.O_CREAT, 0o600)
            with self._exclusive():
                self.id, self.partitions = _identify(path, partitions)
                for number in range(self.partitions):
                    self._tails.append(_Tail(path / f"p-{number:04d}", self.id, file_bytes_max))
                sync_directory(path)
                for tail in self._tails:
                    tail.catch_up()
            opened.pop_all()

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        encoded = {number: blocks.encode(some) for number, some in values.items() if some}
        with self._exclusive():
            self._refuse_when_full(sum(map(len, encoded.values())))
            try:
                for number, block in encoded.items():
                    self._tails[number].write(block)
                for number in encoded:
                    self._tails[number].sync()
            except OSError:
                for number in encoded:
                    self._tails[number].abandon()
                raise
        with self._appended:
            self._appended.notify_all()

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        deadline = time.monotonic() + wait_s
        tail = self._tails[partition]
        while True:
            entries = tail.read(offset, bytes_max)
            if not entries and self._catch_up(tail):
                entries = tail.read(offset, bytes_max)
            left = deadline - time.monotonic()
            if entries or left <= 0:
                return entries
            with self._appended:
                self._appended.wait(min(left, _LOOK_SECONDS))

    def ends(self) -> list[int]:
        return [self.bounds(partition).end for partition in range(self.partitions)]

    def bounds(self, partition: int) -> Bounds:
        tail = self._tails[partition]
        self._catch_up(tail)
        return tail.bounds()

    def bytes_beyond(self, partition: int, offset: int) -> int:
        tail = self._tails[partition]
        self._catch_up(tail)
        return tail.bytes_beyond(offset)

    def hold(self, partition: int) -> Held:
        # The lock goes with the process, however it ends, and with no clock.
        with self._exclusive():
            return Held.MINE if self._tails[partition].hold() else Held.TAKEN

    def trim(self, partition: int, before: int) -> None:
        tail = self._tails[partition]
        with self._exclusive():
            # What is covered stays in the file that is appended to until that is rolled. Where
            # room is short no append would roll it, and nothing ever make room.
            if self._bytes_held() * 2 > self._bytes_max or self._disk_free() < (
                self._disk_reserve_bytes * 2
            ):
                tail.roll_if_before(before)
            covered = tail.covered(before)
        with self._explained():  # without the lock: to remove a large file takes a while
            for file in covered:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        with self._mutex:
            for tail in self._tails:
                tail.close()
                tail.let_go()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    def _catch_up(self, tail: "_Tail") -> bool:
        """Whether others appended, or are about to: then their appends are on disk now."""
        if not tail.is_behind():
            return False
        with self._exclusive():
            tail.catch_up()
        return True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._mutex, self._explained():
            if self._lock_file < 0:
                raise LogUnwritable(why=f"{self._path} was closed", retry_after_s=5)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogUnwritable(why=_explain(error, self._path), retry_after_s=5) from error

    def _refuse_when_full(self, more_bytes: int) -> None:
        for tail in self._tails:
            tail.catch_up()
        held = sum(tail.bytes_held() for tail in self._tails)
        if held + more_bytes > self._bytes_max:  # it may have been trimmed since
            held = self._bytes_held()
        if held + more_bytes > self._bytes_max:
            raise Backlogged(
                why=f"{held} bytes wait in the event log, whose limit is {self._bytes_max}",
                retry_after_s=5,
            )
        free = self._disk_free_lately() - more_bytes
        if free < self._disk_reserve_bytes:
            raise Backlogged(
                why=f"{free} bytes are free on the disk of {self._path}, and "
                f"{self._disk_reserve_bytes} are kept for the writer",
                retry_after_s=10,
            )

    def _disk_free_lately(self) -> int:
        """Looked at now and then: asking for each append costs a tenth of it."""
        now_s = time.monotonic()
        if now_s - self._disk_looked_s > _DISK_LOOK_SECONDS:
            self._disk_looked_s, self._disk_free_then = now_s, self._disk_free()
        return self._disk_free_then

    def _disk_free(self) -> int:
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def _bytes_held(self) -> int:
        """Counted afresh, in every partition."""
        for tail in self._tails:
            tail.catch_up()
            tail.recount()
        return sum(tail.bytes_held() for tail in self._tails)


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
        blocks.seal(block, self._log, self._durable)
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
        for block in blocks.scan(data, self._log, offset):
            end = block.next_offset
        if blocks.valid_block_behind(data, end - offset, self._log, offset):
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
            for block in blocks.scan(data, self._log, make_offset(file, start))
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
    at_least = max(bytes_max, blocks.HEADER_BYTES)
    data = os.pread(descriptor, min(at_least, end - start), start)
    need = min(blocks.first_bytes(data), end - start)
    return os.pread(descriptor, need, start) if need > len(data) else data


def _identify(path: Path, partitions: int) -> tuple[str, int]:
    """The log's id and number of partitions, from its description or a new one."""
    name = path / "log.json"
    if name.exists():
        return _described(name, partitions)
    described = {"version": _VERSION, "id": uuid.uuid4().hex, "partitions": partitions}
    fresh = path / "log.json.new"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(described, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(name)
    return str(described["id"]), partitions


def _described(name: Path, partitions: int) -> tuple[str, int]:
    try:
        found = json.loads(name.read_bytes())
        version, log_id, count = found["version"], str(found["id"]), int(found["partitions"])
    except (ValueError, TypeError, KeyError) as error:
        raise LogCorrupt(path=name, position=0, why="it does not describe a log") from error
    if version != _VERSION:
        raise LogCorrupt(path=name, position=0, why=f"its version is {version}, not {_VERSION}")
    if count != partitions:
        raise LogShapeChanged(path=name.parent, found=count, wanted=partitions)
    return log_id, count


def _explain(error: OSError, path: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk of {path}"
    return f"{error.strerror or error} ({path})"
