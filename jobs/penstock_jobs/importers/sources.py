"""Files and folders that somebody names: which there are, and their content in bounded memory.

Whoever can write into the folder that is named may put anything there: links out of it, bombs,
lines of gigabytes. Only regular files below it are opened, and no link on the way to one is
followed."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from xxhash import xxh3_128_hexdigest

from penstock.errors import InvalidInput
from penstock.ingest.decompression import PIECE_BYTES, decompressed
from penstock.ingest.event_files import CODECS_BY_SUFFIX, EventFile, open_unbuffered, unfit
from penstock_jobs.importers.report import Notes, SourceUnfit

#: What importers look at to recognise a file.
BEGINNING_BYTES = 64 * 1024
#: A row that a file begins with may be longer: instructions, or what somebody pasted.
_FIRST_LINE_BYTES_MAX = 16 * 1024 * 1024
#: No row is so long; one that is costs itself alone.
LINE_BYTES_MAX = 64 * 1024 * 1024
#: A document that is decoded as a whole.
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
#: What is compressed more tightly than this is no text of a session, once it is this long.
_RATIO_MAX = 1000
_BOMB_BYTES_MIN = 256 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_FOLDERS_MAX = 64

_decoder = msgspec.json.Decoder()


# Where reading the lines of a file stopped. It is read on from there if it still holds what it held
# before: agents also cut off the end of their files, or write them anew.

#: So much before a place has to be as it was.
_TAIL_BYTES = 64 * 1024


class PlaceLost(Exception):
    """The file is another than before, or what it holds before the place is."""


class LinePlace(Struct, frozen=True):
    """The end of a whole line: what follows has not been read."""

    inode: int
    offset: int = 0
    #: How many lines lie before it.
    lines: int = 0
    #: What lies right before it.
    tail_bytes: int = 0
    tail_digest: str = ""


class LineCursor:
    """Goes through a file; `place` is as far as it came. It begins at the place, or at the
    beginning."""

    def __init__(self, place: LinePlace | None = None) -> None:
        self.place = place
        #: Whether a last line that lacks its end was given: the rest of it may come.
        self.is_past_place = False
        self._recent = b""
        self._bytes_past_place = 0

    @property
    def lines(self) -> int:
        return self.place.lines if self.place is not None else 0

    def open(self, file: BinaryIO) -> None:
        """Goes to the place in the file. Raises PlaceLost."""
        facts = os.fstat(file.fileno())
        place = self.place
        if place is None:
            self.place = LinePlace(facts.st_ino)
            return
        if facts.st_ino != place.inode or facts.st_size < place.offset:
            raise PlaceLost
        file.seek(place.offset - place.tail_bytes)
        self._recent = file.read(place.tail_bytes) if place.tail_bytes else b""
        if place.offset and xxh3_128_hexdigest(self._recent) != place.tail_digest:
            raise PlaceLost

    def move(self, piece: bytes, end: int, lines: int) -> None:
        """Over a piece of the file. The last whole line in it ends at `end`, or none does at 0;
        `lines` have ended by then."""
        assert self.place is not None
        if end:
            tail = _last(self._recent, piece[:end])
            offset = self.place.offset + self._bytes_past_place + end
            digest = xxh3_128_hexdigest(tail)
            self.place = LinePlace(self.place.inode, offset, lines, len(tail), digest)
            self._bytes_past_place = 0
        self._bytes_past_place += len(piece) - end
        self._recent = _last(self._recent, piece)


def _last(recent: bytes, piece: bytes) -> bytes:
    if len(piece) >= _TAIL_BYTES:
        return piece[-_TAIL_BYTES:]
    return (recent + piece)[-_TAIL_BYTES:]


@dataclass
class ReadProgress:
    """How far a source was read, in bytes as they are on disk, and how many of them were read."""

    position: int = 0
    read_bytes: int = 0


@dataclass(frozen=True)
class Source:
    """A file, or the files of a folder, that are read together."""

    #: As somebody named it, or as it was found below a folder that they named.
    path: Path
    #: What must not be left, and the names below it; a folder that was named itself has none.
    root: Path
    names: tuple[str, ...]
    is_folder: bool = False
    progress: ReadProgress = field(default_factory=ReadProgress, compare=False, repr=False)

    @property
    def real(self) -> Path:
        return self.root.joinpath(*self.names)

    @property
    def name(self) -> str:
        return self.real.name

    @property
    def plain_name(self) -> str:
        """Without the suffix that says that it is compressed."""
        return self.name.removesuffix(".zst").removesuffix(".gz")

    def candidate(self) -> "Candidate":
        return Candidate(self.path, self.root, self.names, self.is_folder)

    def below(self, *names: str) -> "Source":
        """A file in this folder."""
        path = self.path.joinpath(*names)
        return Source(path, self.root, (*self.names, *names), progress=self.progress)

    def files(self) -> Iterator["Source"]:
        """The regular files in this folder, at any depth, in the order of their names."""
        for names, entry in _entries(self.real, ()):
            if entry.is_file(follow_symlinks=False):
                yield self.below(*names)

    def exists(self) -> bool:
        try:
            return unfit(self.real.lstat()) is None
        except OSError:
            return False

    def size(self) -> int:
        files = self.files() if self.is_folder else [self]
        return sum(each.real.lstat().st_size for each in files)

    def mark(self) -> str:
        """It changes when the source does."""
        marks = []
        for file in sorted(self.files(), key=lambda each: each.names) if self.is_folder else [self]:
            facts = file.real.lstat()
            marks.append(f"{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}")
        return "|".join(marks)

    def changed_us(self) -> int:
        """When it changed last, by the clock of its disk."""
        files = self.files() if self.is_folder else [self]
        times = [each.real.lstat().st_mtime_ns for each in files]
        return max(times, default=0) // 1000

    # Reading

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The bytes of the file as they are on disk. Raises SourceUnfit."""
        try:
            with open_unbuffered(EventFile(self.path, self.root, self.names)) as file:
                yield file
        except InvalidInput as error:
            raise SourceUnfit(str(error.facts.get("why", error))) from error
        except OSError as error:
            raise SourceUnfit(error.strerror or str(error)) from error

    def pieces(self, cursor: LineCursor | None = None) -> Iterator[bytes]:
        """What the file holds, decompressed; of one that is not compressed, from the
        cursor's place on. Raises SourceUnfit, and before the first piece PlaceLost."""
        with self.opened() as file:
            if cursor is not None:
                cursor.open(file)
            read, progress = 0, self.progress
            progress.position = file.tell()
            for piece in _plain_pieces(file, CODECS_BY_SUFFIX.get(self.real.suffix)):
                read += len(piece)
                progress.read_bytes += file.tell() - progress.position
                progress.position = file.tell()
                if read > _BOMB_BYTES_MIN and read > _RATIO_MAX * progress.position:
                    raise SourceUnfit("it is compressed more tightly than any session")
                yield piece

    def lines(self, notes: Notes, cursor: LineCursor | None = None) -> Iterator[tuple[int, bytes]]:
        """Its lines with their numbers from 1, blank ones left out, from the cursor's place on. The
        last may lack its end. Raises as `pieces`."""
        cursor = cursor or LineCursor()
        rest = bytearray()
        number, too_long = cursor.lines, False
        for piece in self.pieces(cursor):
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                number += 1
                if too_long:
                    too_long = False
                else:
                    line = bytes(rest) + piece[start:end] if rest else piece[start:end]
                    if line.strip():
                        yield number, line
                rest.clear()
                start = end + 1
            cursor.move(piece, start, number)
            if not too_long:
                rest += piece[start:]
                if len(rest) > LINE_BYTES_MAX:
                    notes.skip("line over 64 MiB", f"line {number + 1}")
                    too_long = True
                    rest.clear()
        if rest.strip():
            cursor.is_past_place = True
            yield number + 1, bytes(rest)

    def rows(
        self, notes: Notes, cursor: LineCursor | None = None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The JSON object of each line. One that is none is skipped; a last line that is torn is
        still being written. Raises as `lines`."""
        torn: tuple[int, bytes, str] | None = None
        for number, line in self.lines(notes, cursor):
            if torn is not None:
                notes.skip("line that is no JSON object", f"line {torn[0]}: {torn[2]}")
                torn = None
            try:
                row = decode(line)
            except SourceUnfit as error:
                torn = number, line, str(error)
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                notes.skip("line that is no JSON object", f"line {number}")
        if torn is not None:
            notes.skip("last line that is torn or still being written", f"line {torn[0]}")

    def document(self) -> Any:
        """The JSON document that the file is. Raises SourceUnfit."""
        return decode(self.content())

    def content(self, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
        """Raises SourceUnfit for more."""
        content = bytearray()
        for piece in self.pieces():
            content += piece
            if len(content) > bytes_max:
                raise SourceUnfit(f"it is longer than {bytes_max // 2**20} MiB")
        return bytes(content)


@dataclass(frozen=True)
class Candidate:
    """A file or a folder, to be recognised."""

    path: Path
    root: Path
    names: tuple[str, ...]
    is_folder: bool = False

    @property
    def name(self) -> str:
        return self.source().plain_name

    def source(self) -> Source:
        return Source(self.path, self.root, self.names, self.is_folder)

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names in this folder."""
        try:
            folder = self.source().real
            return frozenset(os.listdir(folder)) if self.is_folder else frozenset()  # noqa: PTH208
        except OSError:
            return frozenset()

    @cached_property
    def beginning(self) -> bytes:
        """What the file begins with, decompressed; nothing of a file that cannot be read."""
        return self._begins(BEGINNING_BYTES)[:BEGINNING_BYTES]

    def _begins(self, bytes_min: int, *, first_line: bool = False) -> bytes:
        content = bytearray()
        if not self.is_folder:
            with suppress(SourceUnfit):
                for piece in self.source().pieces():
                    content += piece
                    ended = not first_line or b"\n" in content
                    if len(content) >= (bytes_min if ended else _FIRST_LINE_BYTES_MAX):
                        break
        return bytes(content)

    @cached_property
    def first_rows(self) -> list[dict[str, Any]]:
        """The JSON objects of its first lines, as far as they are whole; at most twenty."""
        begins = self.beginning
        if len(begins) == BEGINNING_BYTES and b"\n" not in begins and begins.lstrip()[:1] == b"{":
            begins = self._begins(BEGINNING_BYTES, first_line=True)
        lines = begins.split(b"\n")
        whole = lines if len(begins) < BEGINNING_BYTES else lines[:-1]
        rows = []
        for line in whole[:20]:
            try:
                row = decode(line) if line.strip() else None
            except SourceUnfit:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows


def candidates(
    path: Path, skipped: Notes, is_whole: Callable[[Candidate], bool]
) -> Iterator[Candidate]:
    """The file, or the files of the folder at any depth. A folder that `is_whole` stands for all in
    it. Raises InvalidInput where nothing can be there."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else str(error)
        raise InvalidInput(what=f"The file {path}", why=why) from error
    if not real.is_dir():
        if problem := unfit(real.stat()):
            raise InvalidInput(what=f"The file {path}", why=problem)
        yield Candidate(path, real.parent, (real.name,))
        return
    folders: list[tuple[str, ...]] = [()]
    while folders:
        names = folders.pop()
        folder = Candidate(path.joinpath(*names), real, names, is_folder=True)
        if is_whole(folder):
            yield folder
            continue
        below = []
        for entry in _listing(real.joinpath(*names), skipped):
            inside = (*names, entry.name)
            if problem := _problem(entry, real, len(inside)):
                skipped.skip(problem, str(path.joinpath(*inside)))
            elif entry.is_dir(follow_symlinks=False):
                below.append(inside)
            elif entry.is_file(follow_symlinks=False):
                yield Candidate(path.joinpath(*inside), real, inside)
        folders += reversed(below)


def decode(content: bytes) -> Any:
    """JSON of others. Raises SourceUnfit."""
    try:
        return _decoder.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        mended = _decoded_leniently(content)
        if mended is None:
            raise SourceUnfit(f"it is no JSON: {error}") from error
        return mended
    except RecursionError as error:
        raise SourceUnfit("it is nested too deeply") from error


#: What many programs write though JSON and UTF-8 do not have it: half of a character, no number.
_ODD = re.compile(rb"\\u[dD][89a-fA-F]|\bNaN\b|\bInfinity\b")
_HALF = re.compile("[\ud800-\udfff]")


def _decoded_leniently(content: bytes) -> Any:
    if not _ODD.search(content):
        return None
    try:
        return _mended(json.loads(content, parse_constant=lambda _name: None))
    except (ValueError, RecursionError):
        return None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_HALF.sub("\ufffd", name): _mended(item) for name, item in value.items()}
    return value


def _plain_pieces(file: BinaryIO, codec: str | None) -> Iterator[bytes]:
    if codec is None:
        yield from iter(lambda: file.read(_READ_BYTES), b"")
        return
    try:
        yield from filter(None, decompressed(iter(lambda: file.read(PIECE_BYTES), b""), codec))
    except ValueError as error:
        raise SourceUnfit(f"it is not valid {codec}: {error}") from error


def _listing(folder: Path, skipped: Notes) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        skipped.skip("folder that cannot be read", f"{folder}: {error.strerror}")
        return []


def _entries(
    folder: Path, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], os.DirEntry[str]]]:
    for entry in _listing(folder, Notes(str(folder))):
        inside = (*names, entry.name)
        if entry.is_dir(follow_symlinks=False) and len(inside) <= _FOLDERS_MAX:
            yield from _entries(folder / entry.name, inside)
        else:
            yield inside, entry


def _problem(entry: os.DirEntry[str], root: Path, depth: int) -> str | None:
    """Why an entry is left out, where somebody may miss it. A link that stays in the folder is no
    loss: the walk comes by what it leads to."""
    if entry.is_symlink():
        try:
            stays = Path(entry.path).resolve(strict=True).is_relative_to(root)
        except (OSError, RuntimeError):
            return "link that leads nowhere"
        return None if stays else "link that leads out of the folder"
    if entry.is_dir():
        return "folder that is too deep" if depth > _FOLDERS_MAX else None
    return None if entry.is_file() else "pipe, socket or device"
