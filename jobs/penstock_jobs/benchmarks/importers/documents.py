"""Reads files of others, with bounds on size, depth and encoding, or raises Unfit."""

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from struct import unpack
from typing import IO, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import msgspec

from penstock.core.errors import InvalidInput
from penstock.ingest.decompression import decompressed

T = TypeVar("T")


class Unfit(Exception):
    """Why a document cannot be read."""


#: Small documents are read whole to see what they are.
_LOOK_BYTES_MAX = 256 * 1024 * 1024
#: Many write numbers that JSON does not have. They become texts, which are no scores.
#: A string without an end goes to the end: what is in it is not looked at again and again.
_NO_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
#: Of what is imported at a time.
_ENTRIES_MAX = 4_000_000
_DEPTH_MAX = 64
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UNREADABLE = (
    OSError, BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError,
)  # fmt: skip
#: The method, which zipfile knows from Python 3.14 on, and only where an entry is one frame.
_ZSTANDARD = 93
_HEADER_BYTES = 30


def files(
    path: Path, *names: str, suffix: str = "", ends: Callable[[Path], bool] = lambda _folder: False
) -> Iterator[Path]:
    """Regular files with these names or this suffix, in order; none below a folder where the walk
    `ends`. A single file counts whatever its name. Raises OSError, and InvalidInput for a folder
    that holds more, or is deeper, than any harness makes it."""
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
    try:
        return decode(read(path, _LOOK_BYTES_MAX), kind)
    except Unfit:
        return None


def any_fits(paths: Iterable[Path], kinds: Iterable[type[T]]) -> bool:
    return any(try_decode(path, kind) for path in paths for kind in kinds)


def seconds_between(start: object, end: object) -> float | None:
    """The time between two moments in ISO 8601; None if one is missing, or they run backwards."""
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # one has a zone, and the other none
        return None
    return took if took >= 0 else None


class UnfitArchive(Unfit):
    """The whole is larger than allowed."""


class Archive:
    """A zip archive, read in memory. Of entries with the same name the last counts."""

    def __init__(self, file: IO[bytes], zipped: ZipFile, unpacked_bytes_max: int) -> None:
        self._file = file
        self._zipped = zipped
        self._left = self._unpacked_bytes_max = unpacked_bytes_max
        self.names = list(dict.fromkeys(zipped.namelist()))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Raises Unfit: damaged, encrypted, larger than allowed."""
        data = bytearray()
        try:
            for piece in self._pieces(self._zipped.getinfo(name), bytes_max):
                data += piece
                if len(data) > bytes_max:
                    raise Unfit(f"it is longer than {bytes_max} bytes unpacked")
        except _UNREADABLE as error:
            raise Unfit(f"it is damaged: {error}") from error
        self._left -= len(data)
        if self._left < 0:
            raise UnfitArchive(f"it holds more than {self._unpacked_bytes_max} bytes unpacked")
        return bytes(data)

    def _pieces(self, entry: ZipInfo, bytes_max: int) -> Iterator[bytes]:
        if entry.compress_type != _ZSTANDARD:
            with self._zipped.open(entry) as stream:
                yield stream.read(bytes_max + 1)
            return
        self._file.seek(entry.header_offset)
        header = self._file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or header[:4] != b"PK\x03\x04":
            raise BadZipFile("an entry has no header")
        self._file.seek(sum(unpack("<HH", header[26:30])), 1)  # its name, and what else it says
        packed = self._file.read(entry.compress_size)
        checksum = 0
        for piece in decompressed([packed], "zstd"):
            checksum = zlib.crc32(piece, checksum)
            yield piece
        if checksum != entry.CRC:
            raise BadZipFile("its checksum is wrong")


@contextmanager
def opened_archive(path: Path, unpacked_bytes_max: int) -> Iterator[Archive]:
    try:
        with path.open("rb") as file, ZipFile(file) as zipped:
            yield Archive(file, zipped, unpacked_bytes_max)
    except (OSError, BadZipFile, NotImplementedError) as error:
        raise Unfit(f"it is no zip archive that can be read: {error}") from error
