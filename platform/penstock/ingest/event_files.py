"""Files of events that somebody names: finding them, and reading them in bounded bodies.

A named folder may contain anything: only regular files are opened, and no symbolic links are
followed at that moment."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from penstock.core.errors import InvalidInput, one_line
from penstock.ingest.decompression import PIECE_BYTES, decompressed

#: The smallest size of a body, except the last.
BODY_BYTES = 8 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
#: Arrays are held in memory as a whole.
ARRAY_BYTES_MAX = 256 * 1024 * 1024

_SUFFIXES = (".jsonl", ".ndjson", ".json")
CODECS_BY_SUFFIX = {".gz": "gzip", ".zst": "zstd"}
#: Their regular files contain environments, keys and memory.
_SYSTEM_FOLDERS = ("/proc", "/sys")
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_ARRAY_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+\[")


@dataclass(frozen=True)
class EventFile:
    #: The named path, or its path below a named folder.
    path: Path
    #: Its folder without links, which it must not leave.
    folder: Path
    names: tuple[str, ...]


class LeftOut(NamedTuple):
    path: Path
    why: str


class FileBody(NamedTuple):
    """Whole lines, or one array; how far the file was read, and its size."""

    content: bytes
    is_array: bool
    read: int
    size: int


# Finding


def find_files(paths: list[Path]) -> tuple[list[EventFile], list[LeftOut]]:
    """Find these files, and files of events in these folders. Raises InvalidInput."""
    files: list[EventFile] = []
    left_out: list[LeftOut] = []
    for path in paths:
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # a circular link
            why = "it does not exist" if isinstance(error, FileNotFoundError) else str(error)
            raise InvalidInput(what=f"The file {path}", why=why) from error
        if not real.is_dir():
            if problem := unfit(real.stat()):
                raise InvalidInput(what=f"The file {path}", why=problem)
            files.append(EventFile(path, real.parent, (real.name,)))
            continue
        inside, others = _files_below(path, real)
        if not inside:
            kinds = ", ".join(_SUFFIXES)
            why = f"it contains no file of {kinds}"
            if others:
                why += f" but {others[0].path.name}, and {others[0].why}"
            raise InvalidInput(what=f"The folder {path}", why=why)
        files += inside
        left_out += others
    return files, left_out


def _files_below(path: Path, root: Path) -> tuple[list[EventFile], list[LeftOut]]:
    """Find each file once, even if several links lead to it."""
    files: dict[tuple[str, ...], EventFile] = {}
    left_out: list[LeftOut] = []
    for file in sorted(root.rglob("*")):
        if not named_as_events(file) or file.is_dir():
            continue
        shown = path / file.relative_to(root)
        try:
            real = file.resolve(strict=True)
            problem = unfit(real.stat())
        except (OSError, RuntimeError) as error:
            problem = f"it cannot be read: {one_line(error)}"
        if not problem and not real.is_relative_to(root):
            problem = f"it is a link that leads out of {path}"
        if problem:
            left_out.append(LeftOut(shown, problem))
        else:
            names = real.relative_to(root).parts
            files.setdefault(names, EventFile(shown, root, names))
    return list(files.values()), left_out


def named_as_events(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix in CODECS_BY_SUFFIX else path
    return plain.suffix in _SUFFIXES


def unfit(facts: os.stat_result) -> str | None:
    """The reason not to read a file, or None."""
    if not stat.S_ISREG(facts.st_mode):
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
        return f"it is {kinds.get(stat.S_IFMT(facts.st_mode), 'a device')}, not a regular file"
    for folder in _SYSTEM_FOLDERS:
        if os.path.ismount(folder) and facts.st_dev == os.stat(folder).st_dev:  # noqa: PTH116
            return f"it lies in {folder}, which shows the system itself"
    return None


# Reading


def read_bodies(file: EventFile) -> Iterator[FileBody]:
    try:
        with open_unbuffered(file) as opened:
            yield from _bodies(file.path, opened)
    except OSError as error:
        raise _refusal(file.path, error.strerror or str(error)) from error


def problem_of(file: EventFile) -> str | None:
    """The reason that a file holds no events, judged by its beginning. Raises InvalidInput for
    binary content."""
    try:
        with open_unbuffered(file) as opened:
            piece = next(_pieces(file.path, opened), b"")
    except OSError as error:
        raise _refusal(file.path, error.strerror or str(error)) from error
    _check_text(file.path, piece)
    return unlike_events(piece)


def open_unbuffered(file: EventFile) -> BinaryIO:
    """Open a regular file without following links. Raises InvalidInput, OSError."""
    folder = os.open(file.folder, _OPEN_FLAGS | os.O_DIRECTORY)
    try:
        for name in file.names[:-1]:
            below = os.open(name, _OPEN_FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        # Opening a pipe would otherwise wait for a writer.
        opened = os.open(file.names[-1], _OPEN_FLAGS | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    finally:
        os.close(folder)
    if problem := unfit(os.fstat(opened)):
        os.close(opened)
        raise _refusal(file.path, problem)
    return cast(BinaryIO, os.fdopen(opened, "rb", buffering=0))


def _bodies(path: Path, file: BinaryIO) -> Iterator[FileBody]:
    size = os.fstat(file.fileno()).st_size
    rest = bytearray()
    lines_end, line = 0, 1  # the end of the whole lines of `rest`; the number of its first line
    is_array: bool | None = None
    for piece in _pieces(path, file):
        if is_array is None:
            _check_text(path, piece)
            is_array = _ARRAY_BEGINS.match(piece) is not None
        if b"\n" in piece:
            lines_end = len(rest) + piece.rindex(b"\n") + 1
        rest += piece
        if is_array:
            if len(rest) > ARRAY_BYTES_MAX:
                raise _too_large(path, "its array", ARRAY_BYTES_MAX, "write an event a line")
        elif lines_end and len(rest) >= BODY_BYTES:
            yield FileBody(bytes(memoryview(rest)[:lines_end]), False, file.tell(), size)
            line += rest.count(b"\n")
            del rest[:lines_end]
            lines_end = 0
        if not is_array and len(rest) - lines_end > LINE_BYTES_MAX:
            number = line + rest.count(b"\n")
            raise _too_large(path, f"line {number}", LINE_BYTES_MAX, "no event is so large")
    if rest:
        yield FileBody(bytes(rest), bool(is_array), file.tell(), size)


def _pieces(path: Path, file: BinaryIO) -> Iterator[bytes]:
    codec = CODECS_BY_SUFFIX.get(path.suffix)
    if codec is None:
        yield from iter(lambda: file.read(BODY_BYTES), b"")
        return
    try:
        yield from filter(None, decompressed(iter(lambda: file.read(PIECE_BYTES), b""), codec))
    except ValueError as error:
        raise _refusal(path, f"not valid {codec}: {error}") from error


def _refusal(path: Path, why: str) -> InvalidInput:
    return InvalidInput(what=f"The file {path}", why=why)


def _too_large(path: Path, part: str, bytes_max: int, hint: str) -> InvalidInput:
    return _refusal(path, f"{part} is longer than {bytes_max // 2**20} MiB; {hint}")


# Binary content

#: The size of the beginning that is examined.
_LOOK_BYTES = 64 * 1024
#: The largest share of strange bytes in text; above it the file is refused, not each line.
_STRANGE_SHARE_MAX = 0.05
_STRANGE_BYTES_MAX = 16
_find_strange = re.compile("[\x00\udc80-\udcff]")
#: The first bytes of other kinds of files, to name these.
_BEGINNINGS = {
    b"\x89PNG": "a picture (PNG)",
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed by gzip; its name must end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; its name must end in .zst",
    b"\xff\xfe": "text in UTF-16; it must be UTF-8",
    b"\xfe\xff": "text in UTF-16; it must be UTF-8",
}


def _check_text(path: Path, piece: bytes) -> None:
    for beginning, kind in _BEGINNINGS.items():
        if piece.startswith(beginning):
            raise _refusal(path, f"it holds no events: it looks like {kind}")
    look = piece[:_LOOK_BYTES]
    strange = len(_find_strange.findall(look.decode(errors="surrogateescape")))
    if strange > max(_STRANGE_BYTES_MAX, _STRANGE_SHARE_MAX * len(look)):
        why = f"{strange} of its first {len(look)} bytes are not UTF-8 text"
        raise _refusal(path, f"it holds no events: {why}")


#: A key of every event.
_MARK = b'"session_id"'
_LINES_MAX = 20
_FORM = (
    "An event is a JSON object with session_id, ts, type and payload, one per line: docs/events.md"
)
_IMPORT_AS = "`penstock import FILE --format {}` reads such sessions"
#: Keys that identify lines of other formats.
_KNOWN_ROWS: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset({"sessionId", "uuid"}), "sessions of Claude Code", _IMPORT_AS.format("claude-code")),
    (frozenset({"timestamp", "type", "payload"}), "sessions of Codex", _IMPORT_AS.format("codex")),
    (frozenset({"resourceSpans"}), "traces of OpenTelemetry", ""),
    (frozenset({"task", "score"}), "results of a benchmark", "`penstock bench import` reads them"),
)


def unlike_events(content: bytes) -> str | None:
    """The reason that text which begins like this holds no events, with a remedy; None if it
    may."""
    look = content.removeprefix(b"\xef\xbb\xbf").strip()
    if not look:
        return "it is empty"
    if _MARK in content:
        return None
    for line in look[:_LOOK_BYTES].splitlines()[:_LINES_MAX]:
        try:
            row = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue
        for keys, what, remedy in _KNOWN_ROWS:
            if isinstance(row, dict) and keys <= row.keys():
                return f"it holds no events: it looks like {what}. {remedy or _FORM}"
    return f"it holds no events. {_FORM}"
