"""Entries of a zip archive, one at a time in memory, none on disk. Names are labels here: nothing
is written under them."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import unpack
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from penstock_jobs.benchmarks.importers.documents import Unfit

#: The method that zipfile has only from Python 3.14 on.
_ZSTANDARD = 93
_CHUNK_BYTES = 1024 * 1024
_HEADER_BYTES = 30
_ENCRYPTED = 1
#: The directory at the end is read whole.
_DIRECTORY_BYTES_MAX = 256 * 1024 * 1024


class Archive:
    """Of entries with the same name the last counts."""

    def __init__(self, file: IO[bytes], zipped: ZipFile, unpacked_bytes_max: int) -> None:
        self._file = file
        self._zipped = zipped
        self._left = self._unpacked_bytes_max = unpacked_bytes_max
        self.entries = {one.filename: one for one in zipped.infolist()}

    def read(self, name: str, bytes_max: int) -> bytes:
        """Raises Unfit: damaged, encrypted, larger than allowed."""
        entry = self.entries[name]
        if entry.flag_bits & _ENCRYPTED:
            raise Unfit("it is encrypted")
        data = bytearray()
        try:
            for chunk in self._chunks(entry):
                data += chunk
                if len(data) > bytes_max:
                    raise Unfit(f"it is longer than {bytes_max} bytes unpacked")
        except (OSError, BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise Unfit(f"it is damaged: {error}") from error
        if zlib.crc32(data) != entry.CRC:
            raise Unfit("it is damaged: its checksum is wrong")
        self._left -= len(data)
        if self._left < 0:
            raise TooMuch(f"it holds more than {self._unpacked_bytes_max} bytes unpacked")
        return bytes(data)

    def _chunks(self, entry: ZipInfo) -> Iterator[bytes]:
        if entry.compress_type in (ZIP_STORED, ZIP_DEFLATED):
            with self._zipped.open(entry) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
        elif entry.compress_type == _ZSTANDARD:
            yield from self._zstandard(entry)
        else:
            raise NotImplementedError(f"packed by method {entry.compress_type}")

    def _zstandard(self, entry: ZipInfo) -> Iterator[bytes]:
        import pyarrow as pa

        self._file.seek(entry.header_offset)
        header = self._file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or header[:4] != b"PK\x03\x04":
            raise BadZipFile("an entry has no header")
        name_bytes, extra_bytes = unpack("<HH", header[26:30])
        start = entry.header_offset + _HEADER_BYTES + name_bytes + extra_bytes
        packed = pa.PythonFile(_Part(self._file, start, entry.compress_size), mode="r")
        with pa.CompressedInputStream(packed, "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


class TooMuch(Unfit):
    """The whole is larger than allowed: there is no use in going on."""


class _Part:
    """A stretch of a file, as a file."""

    closed = False

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._at
        self._file.seek(self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@contextmanager
def opened(path: Path, unpacked_bytes_max: int) -> Iterator[Archive]:
    """Raises Unfit."""
    try:
        with path.open("rb") as file:
            _check_directory(file)
            with ZipFile(file) as zipped:
                archive = Archive(file, zipped, unpacked_bytes_max)
                yield archive
    except (OSError, BadZipFile, NotImplementedError) as error:
        raise Unfit(f"it is no zip archive that can be read: {error}") from error


def _check_directory(file: IO[bytes]) -> None:
    """Before the library reads it into memory. Raises Unfit."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 65_557))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise Unfit("it ends too early, or is no zip archive")
    (directory_bytes,) = unpack("<L", tail[end + 12 : end + 16])
    locator = tail[end - 20 : end] if end >= 20 else b""
    if directory_bytes == 0xFFFFFFFF and locator[:4] == b"PK\x06\x07":
        file.seek(unpack("<Q", locator[8:16])[0])
        record = file.read(56)
        directory_bytes = unpack("<Q", record[40:48])[0] if len(record) == 56 else 2**64
    file.seek(0)
    if directory_bytes > min(_DIRECTORY_BYTES_MAX, size):
        raise Unfit("its directory is larger than any honest one")
