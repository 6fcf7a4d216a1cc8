"""Reads files of others, with bounds on size, depth and encoding, or raises Unfit."""

import mmap
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from struct import unpack
from typing import IO, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec

from penstock.errors import InvalidInput
from penstock.ingest.decompression import decompressed

T = TypeVar("T")


class Unfit(Exception):
    """Why a document cannot be read."""


#: Small documents are read whole to see what they are.
_LOOK_BYTES_MAX = 256 * 1024 * 1024
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: A character that gives a document its form, after any that do not; or a string without an end.
_TOKEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb')*+([\[\]{},"])', re.DOTALL)
_NAME = re.compile(rb"\s*(" + _STRING + rb")\s*:", re.DOTALL)
#: Many write numbers that JSON does not have. They become texts, which are no scores.
#: A string without an end goes to the end: what is in it is not looked at again and again.
_NO_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
#: Of what is imported at a time.
_ENTRIES_MAX = 4_000_000
_DEPTH_MAX = 64
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def files(
    path: Path, *names: str, suffix: str = "", ends: Callable[[Path], bool] = lambda _folder: False
) -> Iterator[Path]:
    """Regular files with these names or this suffix, in order; none below a folder where the walk
    `ends`. A single file counts whatever its name. Raises OSError for an unreadable folder, and
    InvalidInput for one that holds more, or is deeper, than any harness makes it."""
    if path.is_file():
        yield path
        return
    entries = 0
    folders = [(path, 1)]
    while folders:
        folder, depth = folders.pop()
        inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
        entries += len(inside)
        if entries > _ENTRIES_MAX or depth > _DEPTH_MAX:
            why = f"there are more than {_ENTRIES_MAX} files, or folders over {_DEPTH_MAX} deep"
            raise InvalidInput(what=f"The folder {path}", why=why)
        for entry in inside:
            fits = entry.name in names or (suffix and entry.name.endswith(suffix))
            if fits and entry.is_file():
                yield Path(entry.path)
        if not ends(folder):
            below = [entry for entry in reversed(inside) if entry.is_dir(follow_symlinks=False)]
            folders += [(Path(entry.path), depth + 1) for entry in below]


def read(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise Unfit(error.strerror or str(error)) from error
    if len(data) > bytes_max:
        raise Unfit(f"it is longer than {bytes_max} bytes")
    return data


def decode(data: bytes, kind: type[T]) -> T:
    if encoding := _BOMS.get(data[:2]):
        raise Unfit(f"it is {encoding}, and not UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        if b"NaN" in data or b"Infinity" in data:
            data = _NO_NUMBER.sub(
                lambda text: text[0] if text[0][:1] == b'"' else b'"%b"' % text[0], data
            )
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unfit(str(error)) from error
    except RecursionError as error:
        raise Unfit("it is nested too deeply") from error


def try_decode(path: Path, kind: type[T]) -> T | None:
    """None if it is something else, or too large to look at."""
    try:
        return decode(read(path, _LOOK_BYTES_MAX), kind)
    except Unfit:
        return None


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """A file of any size, without its bytes in memory. Raises Unfit."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise Unfit(str(error)) from error


def members(data: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """The names of an object's members, and where the value of each begins and ends."""
    for start, end in items(data, 0, b"{"):
        name = _NAME.match(data, start)
        if name is None:
            raise Unfit("a member of it has no name")
        yield decode(name[1], str), name.end(), end


def items(data: mmap.mmap, start: int, opening: bytes = b"[") -> Iterator[tuple[int, int]]:
    """Where each item of the array there begins and ends."""
    depth, at = 0, start
    for token in _TOKEN.finditer(data, start):
        kind, end = token[1], token.start(1)
        if kind == b'"':
            break
        if depth == 0 and kind != opening:
            raise Unfit("it is not of the form expected")
        if kind in b"[{":
            depth += 1
            if depth == 1:
                at = token.end()
            continue
        depth -= kind in b"]}"
        if depth == 0 or (depth == 1 and kind == b","):
            # The value may be large: the first 64 bytes are usually enough to see one.
            if data[at : min(end, at + 64)].strip() or data[at:end].strip():
                yield at, end
            at = token.end()
        if depth == 0:
            return
    raise Unfit("it ends too early")


def seconds_between(start: object, end: object) -> float | None:
    """The time between two moments in ISO 8601; None if one is missing, or they run backwards."""
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # one has a zone, and the other none
        return None
    return took if took >= 0 else None


_CHUNK_BYTES = 1024 * 1024
_HEADER_BYTES = 30
_DIRECTORY_BYTES_MAX = 256 * 1024 * 1024


class UnfitArchive(Unfit):
    """The whole is larger than allowed."""


class Archive:
    """A zip archive, read in memory. Of entries with the same name the last counts."""

    def __init__(self, file: IO[bytes], zipped: ZipFile, unpacked_bytes_max: int) -> None:
        self._file = file
        self._zipped = zipped
        self._left = self._unpacked_bytes_max = unpacked_bytes_max
        self.entries = {entry.filename: entry for entry in zipped.infolist()}

    def read(self, name: str, bytes_max: int) -> bytes:
        """Raises Unfit: damaged, encrypted, larger than allowed."""
        entry = self.entries[name]
        if entry.flag_bits & 1:
            raise Unfit("it is encrypted")
        data = bytearray()
        try:
            for chunk in self._chunks(entry):
                data += chunk
                if len(data) > bytes_max:
                    raise Unfit(f"it is longer than {bytes_max} bytes unpacked")
        except (
            OSError,
            BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise Unfit(f"it is damaged: {error}") from error
        if zlib.crc32(data) != entry.CRC:
            raise Unfit("it is damaged: its checksum is wrong")
        self._left -= len(data)
        if self._left < 0:
            raise UnfitArchive(f"it holds more than {self._unpacked_bytes_max} bytes unpacked")
        return bytes(data)

    def _chunks(self, entry: ZipInfo) -> Iterator[bytes]:
        if entry.compress_type in (ZIP_STORED, ZIP_DEFLATED):
            with self._zipped.open(entry) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
            return
        if entry.compress_type != 93:  # Zstandard, which zipfile knows from Python 3.14 on
            raise NotImplementedError(f"packed by method {entry.compress_type}")
        self._file.seek(entry.header_offset)
        header = self._file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or header[:4] != b"PK\x03\x04":
            raise BadZipFile("an entry has no header")
        self._file.seek(sum(unpack("<HH", header[26:30])), 1)  # its name, and what else it says
        yield from decompressed(self._packed(entry.compress_size), "zstd")

    def _packed(self, size: int) -> Iterator[bytes]:
        while size and (part := self._file.read(min(size, _CHUNK_BYTES))):
            size -= len(part)
            yield part


@contextmanager
def opened_archive(path: Path, unpacked_bytes_max: int) -> Iterator[Archive]:
    """Raises Unfit."""
    try:
        with path.open("rb") as file:
            _check_directory(file)
            with ZipFile(file) as zipped:
                yield Archive(file, zipped, unpacked_bytes_max)
    except (OSError, BadZipFile, NotImplementedError) as error:
        raise Unfit(f"it is no zip archive that can be read: {error}") from error


def _check_directory(file: IO[bytes]) -> None:
    """Refuse a huge directory before the library reads it into memory."""
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
