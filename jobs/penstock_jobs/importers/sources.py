"""Files in a folder that somebody names, found and read in bounded memory.

Others may put anything into the folder: links out of it, bombs, lines of gigabytes. Only regular
files below it are opened, and no link is followed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from msgspec import Struct
from xxhash import xxh3_128_hexdigest

from penstock.core.errors import InvalidInput
from penstock.ingest.decompression import PIECE_BYTES, decompressed
from penstock.ingest.event_files import CODECS_BY_SUFFIX, EventFile, open_unbuffered, unfit
from penstock_jobs.importers.fields import decode, moment_us
from penstock_jobs.importers.report import Notes, SourceUnfit

#: Importers recognise a file by this beginning.
BEGINNING_BYTES = 64 * 1024
#: Some agents begin a log with many titles.
_FIRST_ROWS = 200
#: The first row may be longer: it may hold instructions or pasted text.
_FIRST_LINE_BYTES_MAX = 16 * 1024 * 1024
#: A longer line is skipped.
LINE_BYTES_MAX = 64 * 1024 * 1024
#: Documents are decoded as a whole.
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
#: Longer content that is compressed more tightly than this is not a session.
_RATIO_MAX = 1000
_BOMB_BYTES_MIN = 256 * 1024 * 1024
_READ_BYTES = 1024 * 1024
#: Some programs begin a file with the mark of UTF-8.
_MARK = b"\xef\xbb\xbf"
_FOLDERS_MAX = 64
#: Bytes before the place that must be unchanged: agents also truncate or rewrite their files.
_TAIL_BYTES = 64 * 1024

Found = TypeVar("Found")


class PlaceLost(Exception):
    """The file, or its content before the place, is not the one that was read before."""


class LinePlace(Struct, frozen=True):
    """The end of the last whole line that was read."""

    inode: int
    offset: int = 0
    lines: int = 0
    tail_digest: str = ""


@dataclass
class LineCursor:
    """Reads a file from a place, or from its beginning; `place` moves along."""

    place: LinePlace | None = None
    #: Whether a last line without its end was read. The rest of it may come.
    is_past_place: bool = False
    _read_to: int = 0
    _recent: bytes = b""

    def open(self, file: BinaryIO) -> None:
        """Go to the place in the file. Raises PlaceLost."""
        facts = os.fstat(file.fileno())
        place = self.place = self.place or LinePlace(facts.st_ino)
        if facts.st_ino != place.inode or facts.st_size < place.offset:
            raise PlaceLost
        begins = max(place.offset - _TAIL_BYTES, 0)
        file.seek(begins)
        self._read_to, self._recent = place.offset, file.read(place.offset - begins)
        if place.offset and xxh3_128_hexdigest(self._recent) != place.tail_digest:
            raise PlaceLost

    def move(self, piece: bytes, end: int, lines: int) -> None:
        """Move over a piece of the file. `end` is where its last whole line ends, 0 if none does;
        `lines` is the number of that line."""
        assert self.place is not None
        if end:
            tail = xxh3_128_hexdigest((self._recent + piece[:end])[-_TAIL_BYTES:])
            self.place = LinePlace(self.place.inode, self._read_to + end, lines, tail)
        self._read_to += len(piece)
        self._recent = (self._recent + piece)[-_TAIL_BYTES:]


@dataclass
class ReadProgress:
    position: int = 0
    read_bytes: int = 0


@dataclass(frozen=True)
class Source(EventFile):
    """A file, or the files of a folder, that are read together.

    `names` lead to it from the named folder."""

    is_folder: bool = False
    progress: ReadProgress = field(default_factory=ReadProgress, compare=False, repr=False)

    @property
    def real(self) -> Path:
        return self.folder.joinpath(*self.names)

    @property
    def name(self) -> str:
        return self.real.name

    @property
    def plain_name(self) -> str:
        """The name without a suffix of compression."""
        return self.name.removesuffix(".zst").removesuffix(".gz")

    @property
    def parent_name(self) -> str:
        return self.names[-2] if len(self.names) > 1 else self.folder.name

    def ends(self, *suffixes: str) -> bool:
        return self.plain_name.endswith(suffixes)

    def below(self, *names: str) -> "Source":
        path = self.path.joinpath(*names)
        return Source(path, self.folder, (*self.names, *names), progress=self.progress)

    def beside(self, name: str) -> "Source":
        """A file in the same folder."""
        return Source(self.path.with_name(name), self.folder, (*self.names[:-1], name))

    def files(self) -> Iterator["Source"]:
        for names, entry in _entries(self.real, ()):
            if entry.is_file(follow_symlinks=False):
                yield self.below(*names)

    def exists(self) -> bool:
        try:
            return unfit(self.real.lstat()) is None
        except OSError:
            return False

    def _facts(self) -> Iterator[os.stat_result]:
        files = sorted(self.files(), key=lambda each: each.names) if self.is_folder else [self]
        return (file.real.lstat() for file in files)

    def size(self) -> int:
        return sum(facts.st_size for facts in self._facts())

    def mark(self) -> str:
        return "|".join(f"{f.st_ino}:{f.st_size}:{f.st_mtime_ns}" for f in self._facts())

    def changed_us(self) -> int:
        """The time of the last change, by the clock of the disk."""
        return max((facts.st_mtime_ns for facts in self._facts()), default=0) // 1000

    def time_us(self, value: object) -> int:
        """A time that the source holds, else the time of its last change."""
        return moment_us(value) or self.changed_us()

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file as it is on disk. Raises SourceUnfit."""
        try:
            with open_unbuffered(self) as file:
                yield file
        except InvalidInput as error:
            raise SourceUnfit(str(error.facts.get("why", error))) from error
        except OSError as error:
            raise SourceUnfit(error.strerror or str(error)) from error

    def pieces(self, cursor: LineCursor | None = None) -> Iterator[bytes]:
        """Read the decompressed content; of an uncompressed file, from the cursor's place on.

        Raises SourceUnfit, and before the first piece PlaceLost."""
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
        """Read the lines that are not blank, numbered from 1, from the cursor's place on.

        The last line may lack its end. Raises as `pieces`."""
        cursor = cursor or LineCursor()
        rest = bytearray()
        number, too_long = cursor.place.lines if cursor.place else 0, False
        for piece in self.pieces(cursor):
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                number += 1
                line = bytes(rest) + piece[start:end] if rest else piece[start:end]
                if not too_long and line.strip():
                    yield number, line
                too_long = False
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
        """Read the JSON object of each line, and skip other lines. A torn last line may still be
        written. Raises as `lines`."""
        torn: str | None = None
        for number, line in self.lines(notes, cursor):
            if torn is not None:
                notes.skip("line that is not a JSON object", torn)
                torn = None
            try:
                row = decode(line)
            except SourceUnfit as error:
                torn = f"line {number}: {error}"
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                notes.skip("line that is not a JSON object", f"line {number}")
        if torn is not None:
            place = torn.partition(":")[0]
            notes.skip("last line that is torn or still being written", place)

    def probe(self) -> "Candidate":
        return Candidate(self.path, self.folder, self.names)

    def records(self, notes: Notes) -> Iterator[tuple[int, Any]]:
        """Read the JSON object of each line, or the one JSON document. Raises SourceUnfit."""
        if self.probe().is_lines:
            yield from self.rows(notes)
        else:
            yield 1, self.document()

    def document(self) -> Any:
        """Read the file as a JSON document. Raises SourceUnfit."""
        return decode(self.content())

    def json_object(self, why: str = "it is not an object") -> dict[str, Any]:
        if not isinstance(document := self.document(), dict):
            raise SourceUnfit(why)
        return document

    def json_object_or_skip(self, notes: Notes, what: str) -> dict[str, Any] | None:
        try:
            document = self.document()
        except SourceUnfit as error:
            notes.skip(f"{what} that cannot be read", f"{self.name}: {error}")
            return None
        if isinstance(document, dict):
            return document
        notes.skip(f"{what} that is not an object", self.name)
        return None

    def content(self, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
        """Read the whole file. Raises SourceUnfit if it is longer than `bytes_max`."""
        content = bytearray()
        for piece in self.pieces():
            content += piece
            if len(content) > bytes_max:
                raise SourceUnfit(f"it is longer than {bytes_max // 2**20} MiB")
        return bytes(content)


@dataclass(frozen=True)
class Candidate(Source):
    """A file or folder to recognise. It caches its beginning; a plain `source` does not."""

    def source(self, kind: type[Source] = Source) -> Source:
        return kind(self.path, self.folder, self.names, self.is_folder)

    @cached_property
    def entries(self) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self.real)) if self.is_folder else frozenset()  # noqa: PTH208
        except OSError:
            return frozenset()

    @cached_property
    def beginning(self) -> bytes:
        """The decompressed beginning of the file, empty if it cannot be read."""
        return self._begins(BEGINNING_BYTES)[:BEGINNING_BYTES]

    def _begins(self, bytes_min: int, *, first_line: bool = False) -> bytes:
        content = bytearray()
        if not self.is_folder:
            with suppress(SourceUnfit):
                for piece in self.pieces():
                    content += piece
                    ended = not first_line or b"\n" in content
                    if len(content) >= (bytes_min if ended else _FIRST_LINE_BYTES_MAX):
                        break
        return bytes(content)

    @cached_property
    def first_rows(self) -> list[dict[str, Any]]:
        """The JSON objects of the first lines, without a torn last one. Empty if most lines are
        none: they belong to a document."""
        if self.beginning.removeprefix(_MARK).lstrip()[:1] != b"{":
            return []
        lines = self._begun.split(b"\n")
        is_all = len(self._begun) < BEGINNING_BYTES
        whole = list(filter(bytes.strip, lines if is_all else lines[:-1]))
        rows = []
        for line in whole[:_FIRST_ROWS]:
            with suppress(SourceUnfit):
                rows.append(decode(line))
        found = [row for row in rows if isinstance(row, dict)]
        return found if 2 * len(found) >= len(whole[:_FIRST_ROWS]) else []

    @cached_property
    def is_lines(self) -> bool:
        """Whether it holds a JSON object per line, and more than one line."""
        return bool(self.first_rows) and b"\n" in self._begun.strip()

    @cached_property
    def _begun(self) -> bytes:
        """The beginning, with all of the first line."""
        if len(self.beginning) < BEGINNING_BYTES or b"\n" in self.beginning:
            return self.beginning
        return self._begins(BEGINNING_BYTES, first_line=True)


def candidates(
    path: Path, skipped: Notes, whole: Callable[[Candidate], Found | None]
) -> Iterator[tuple[Candidate, Found | None]]:
    """Find the file, or the files of the folder at any depth. Raises InvalidInput.

    A folder that `whole` recognises is returned instead of its files."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else str(error)
        raise InvalidInput(what=f"The file {path}", why=why) from error
    if not real.is_dir():
        if problem := unfit(real.stat()):
            raise InvalidInput(what=f"The file {path}", why=problem)
        yield Candidate(path, real.parent, (real.name,)), None
        return
    folders: list[tuple[str, ...]] = [()]
    while folders:
        names = folders.pop()
        folder = Candidate(path.joinpath(*names), real, names, is_folder=True)
        if (found := whole(folder)) is not None:
            yield folder, found
            continue
        below = []
        for entry in _listing(real.joinpath(*names), skipped):
            inside = (*names, entry.name)
            if problem := _problem(entry, real, len(inside)):
                skipped.skip(problem, str(path.joinpath(*inside)))
            elif entry.is_dir(follow_symlinks=False):
                below.append(inside)
            elif entry.is_file(follow_symlinks=False):
                yield Candidate(path.joinpath(*inside), real, inside), None
        folders += reversed(below)


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
    """The reason to leave an entry out, if it is worth noting. A link within the folder is not: the
    walk finds its target."""
    if entry.is_symlink():
        try:
            stays = Path(entry.path).resolve(strict=True).is_relative_to(root)
        except (OSError, RuntimeError):
            return "link that leads nowhere"
        return None if stays else "link that leads out of the folder"
    if entry.is_dir():
        return "folder that is too deep" if depth > _FOLDERS_MAX else None
    return None if entry.is_file() else "pipe, socket or device"
