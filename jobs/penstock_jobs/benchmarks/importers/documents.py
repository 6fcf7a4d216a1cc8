"""Reads files that others wrote, with bounds on size, depth and encoding, or raises Unfit."""

import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from struct import unpack
from typing import IO, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import msgspec

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock.ingest.decompression import decompressed

T = TypeVar("T")


class Unfit(Exception):
    """Raised for a document that cannot be read, with the reason."""


#: Smaller documents are decoded to recognise them.
_LOOK_BYTES_MAX = 256 * 1024 * 1024
#: Numbers that JSON does not have become texts, which are not scores. A string without an end
#: matches up to the end of the text, so that it is scanned only once.
_NO_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
#: Files and folders of one import.
_ENTRIES_MAX = 4_000_000
_DEPTH_MAX = 64
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UNREADABLE = (
    OSError, BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError,
)  # fmt: skip
#: A method that zipfile knows only from Python 3.14 on, for entries of one frame.
_ZSTANDARD = 93
_HEADER_BYTES = 30


def files(
    path: Path, *names: str, suffix: str = "", ends: Callable[[Path], bool] = lambda _folder: False
) -> Iterator[Path]:
    """Regular files with these names or this suffix, in order. A single file counts in any case.

    The walk does not go below a folder where it `ends`. Raises OSError, and InvalidInput for a
    folder that is larger or deeper than any harness makes it."""
    if path.is_file():
        yield path
        return
    entries = 0
    for folder, folders, found in os.walk(path, onerror=_refuse):
        entries += len(folders) + len(found)
        depth = len(Path(folder).relative_to(path).parts) + 1
        if entries > _ENTRIES_MAX or depth > _DEPTH_MAX:
            why = f"there are more than {_ENTRIES_MAX} files, or folders over {_DEPTH_MAX} deep"
            raise InvalidInput(what=f"The folder {path}", why=why)
        for file in (Path(folder, name) for name in sorted(found)):
            if (file.name in names or (suffix and file.name.endswith(suffix))) and file.is_file():
                yield file
        folders[:] = [] if ends(Path(folder)) else sorted(folders)


def _refuse(error: OSError) -> None:
    raise error


def read(path: Path, bytes_max: int) -> bytes:
    try:
        return toml_document.read_bounded(path, bytes_max, str(path))
    except InvalidInput as error:
        raise Unfit(error.facts["why"]) from error


def decode(data: bytes, kind: type[T]) -> T:
    if encoding := _BOMS.get(data[:2]):
        raise Unfit(f"it is {encoding}, not UTF-8")
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


def seconds_between(start: object, end: object) -> float | None:
    """The time between two moments in ISO 8601. None if one is missing or the end comes first."""
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # only one of them has a zone
        return None
    return took if took >= 0 else None


class UnfitArchive(Unfit):
    """Raised for an archive whose unpacked content is too large."""


class Archive:
    """A zip archive, read in memory. The last of several entries with one name counts."""

    def __init__(self, file: IO[bytes], zipped: ZipFile, unpacked_bytes_max: int) -> None:
        self._file = file
        self._zipped = zipped
        self._left = self._unpacked_bytes_max = unpacked_bytes_max
        self.names = list(dict.fromkeys(zipped.namelist()))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Read an entry. Raises Unfit if it is damaged, encrypted or too large."""
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
        self._file.seek(sum(unpack("<HH", header[26:30])), 1)  # the name and extra fields
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
        raise Unfit(f"it is not a readable zip archive: {error}") from error
