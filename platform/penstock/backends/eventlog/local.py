"""The embedded event log: files in a directory, safe for several processes.

    log/log.json              its id and the number of partitions
    log/append.lock           held while appending
    log/p-0000/writer.lock    held by the process that takes its events into the lake
    log/p-0000/0000000001.log blocks; rolled when large, removed when the lake covers them

An offset is the number of the file and the position in it."""

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

from penstock.backends.eventlog.local_partition import LocalPartition, encode_block
from penstock.backends.eventlog.log import (
    Claim,
    DamagedPart,
    Entry,
    LogCorrupt,
    LogShapeChanged,
    LogUnwritable,
    OffsetBounds,
)
from penstock.core.errors import Backlogged
from penstock.core.files import make_directory, make_private_once
from penstock.core.settings import MIB

_VERSION = 1
#: Bytes read at a time in a search for damage.
_LOOK_BYTES = 8 * MIB
#: How late an append by another process may be seen.
_POLL_SECONDS = 0.02
#: How old the measured free space may be. The reserve covers what may be written meanwhile.
_DISK_FREE_SECONDS = 0.1


class LocalEventLog:
    """An EventLog in a directory."""

    #: A block's length has 32 bits.
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
        """Open or make the log. Raises LogUnwritable, LogCorrupt, LogShapeChanged."""
        self._path = path
        self._bytes_max = bytes_max
        self._disk_reserve_bytes = disk_reserve_bytes
        self._mutex = threading.Lock()
        self._appended = threading.Condition()
        self._lock_file = -1
        self._disk_free, self._disk_checked_s = 0, -math.inf
        self._partitions: list[LocalPartition] = []
        with ExitStack() as opened:
            opened.callback(self.close)
            with self._explained():
                self.id, self.partitions = _identify(path, partitions)
                self._lock_file = os.open(path / "append.lock", os.O_RDWR | os.O_CREAT, 0o600)
            for number in range(self.partitions):
                files = path / _folder(number)
                self._partitions.append(LocalPartition(files, self.id, file_bytes_max))
            opened.pop_all()

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        blocks = {number: encode_block(batch) for number, batch in values.items() if batch}
        with self._locked():
            self._refuse_when_full(sum(map(len, blocks.values())))
            try:
                for number, block in blocks.items():
                    self._partitions[number].write(block)
                for number in blocks:
                    self._partitions[number].sync()
            except OSError:
                for number in blocks:
                    self._partitions[number].abandon()
                raise
        with self._appended:
            self._appended.notify_all()

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        deadline = time.monotonic() + wait_s
        while True:
            with self._explained():
                entries = self._partitions[partition].read(offset, bytes_max)
            left = deadline - time.monotonic()
            if entries or left <= 0:
                return entries
            with self._appended:
                self._appended.wait(min(left, _POLL_SECONDS))

    def refresh(self) -> None:
        """A local log keeps the partitions with which it was made."""

    def ends(self) -> list[int]:
        return [self.bounds(partition).end for partition in range(self.partitions)]

    def bounds(self, partition: int) -> OffsetBounds:
        return self._looked_at(partition).bounds()

    def bytes_beyond(self, partition: int, offset: int) -> int:
        return self._looked_at(partition).bytes_beyond(offset)

    def hold(self, partition: int) -> Claim:
        files = self._partitions[partition]
        # The lock goes with the process, however it ends, and with no clock.
        with self._mutex, self._explained():
            mine = files.is_held or files.hold()
        return Claim.MINE if mine else Claim.TAKEN

    def mend(self) -> None:
        with self._locked():
            for partition in self._partitions:
                partition.catch_up()

    def secure(self, partition: int, offset: int) -> None:
        with self._explained():
            self._partitions[partition].secure(offset)

    def trim(self, partition: int, before: int) -> None:
        files = self._looked_at(partition)
        with self._explained():
            full = self._bytes_on_disk() * 2 > self._bytes_max
            full = full or self._measure_disk_free() < self._disk_reserve_bytes * 2
        # The newest file stays until it is rolled. Where room is short no append rolls it, and
        # nothing would ever make room.
        if full and files.bounds().end <= before:
            self.set_apart(partition)
        with self._explained():
            for file in files.covered(before):
                file.unlink(missing_ok=True)

    def set_apart(self, partition: int) -> int:
        with self._locked():
            return self._partitions[partition].roll()

    def forget(self, partition: int, before: int) -> bool:
        self.trim(partition, before)
        return True

    def damage(self, *, look: bool = False) -> list[DamagedPart]:
        if look:
            self.mend()
        for number in range(self.partitions if look else 0):
            offset = self.bounds(number).first
            while entries := self.read(number, offset, _LOOK_BYTES):
                offset = entries[-1].next_offset
        return [part for partition in self._partitions for part in partition.damage()]

    def close(self) -> None:
        with self._mutex:
            for partition in self._partitions:
                partition.close()
                partition.let_go()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    def _looked_at(self, partition: int) -> LocalPartition:
        files = self._partitions[partition]
        with self._explained():
            files.look()
        return files

    @contextmanager
    def _locked(self) -> Iterator[None]:
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
            why = f"{error.strerror or error} ({self._path})"
            if error.errno == errno.ENOSPC:
                why = f"no space is left on the disk of {self._path}"
            raise LogUnwritable(why=why, retry_after_s=5) from error

    def _refuse_when_full(self, more_bytes: int) -> None:
        for partition in self._partitions:
            partition.catch_up()
        held = sum(partition.bytes_held() for partition in self._partitions)
        if held + more_bytes > self._bytes_max:
            held = self._bytes_on_disk()
        if held + more_bytes > self._bytes_max:
            why = f"{held} bytes wait in the event log, whose limit is {self._bytes_max}"
            raise Backlogged(why=why, retry_after_s=5)
        now_s = time.monotonic()
        if now_s - self._disk_checked_s > _DISK_FREE_SECONDS:
            self._disk_free, self._disk_checked_s = self._measure_disk_free(), now_s
        free = self._disk_free - more_bytes
        if free < self._disk_reserve_bytes:
            reserve = f"{self._disk_reserve_bytes} are kept for the writer"
            why = f"{free} bytes are free on the disk of {self._path}, and {reserve}"
            raise Backlogged(why=why, retry_after_s=10)

    def _bytes_on_disk(self) -> int:
        return sum(partition.bytes_on_disk() for partition in self._partitions)

    def _measure_disk_free(self) -> int:
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize


def _folder(partition: int) -> str:
    return f"p-{partition:04d}"


def _identify(path: Path, partitions: int) -> tuple[str, int]:
    name = path / "log.json"
    if not name.exists():
        for number in range(partitions):
            make_directory(path / _folder(number))
        new = {"version": _VERSION, "id": uuid.uuid4().hex, "partitions": partitions}
        new["crc32"] = zlib.crc32(str(new["id"]).encode())
        make_private_once(name, json.dumps(new).encode())
    try:
        fields = json.loads(name.read_bytes())
        version, log_id, count = fields["version"], str(fields["id"]), int(fields["partitions"])
    except (ValueError, TypeError, KeyError) as error:
        raise LogCorrupt(path=name, position=0, why="it does not describe a log") from error
    if version != _VERSION:
        raise LogCorrupt(path=name, position=0, why=f"its version is {version}, not {_VERSION}")
    if fields.get("crc32") != zlib.crc32(log_id.encode()):  # no block would be of this log
        why = "its id is not the one that was written: put the file of a backup back"
        raise LogCorrupt(path=name, position=0, why=why)
    if count != partitions:
        raise LogShapeChanged(path=path, found=count, wanted=partitions)
    return log_id, count
