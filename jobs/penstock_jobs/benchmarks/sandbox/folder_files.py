"""The files of a folder as values: read, written and compared. Links are never followed."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Self

from penstock.core.files import relative_name

#: History, which may hold answers, and caches. Neither copied nor counted as an edit.
IGNORED = frozenset({
    ".git", ".hg", ".svn", ".jj",
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".DS_Store",
})  # fmt: skip


class File(NamedTuple):
    """A file, or a symbolic link to `content`."""

    path: str
    content: bytes
    kind: str = "file"  # file | program | link


class FolderLimits(NamedTuple):
    entries: int
    depth: int
    file_bytes: int
    bytes: int


def excess_of(folder: str, limits: FolderLimits) -> str | None:
    """Name the limit that a folder exceeds, if any, without reading its files. Raises OSError."""
    entries = size = 0
    for entry, depth in _entries(folder):
        entries += 1
        if entries > limits.entries:
            return f"it holds more than {limits.entries} files and folders"
        if entry.is_dir(follow_symlinks=False):
            if depth >= limits.depth:
                return f"its folders lie more than {limits.depth} deep"
            continue
        file_bytes = entry.stat(follow_symlinks=False).st_size
        size += file_bytes
        if file_bytes > limits.file_bytes:
            return f"{entry.path} has over {limits.file_bytes} bytes, the limit of a file"
        if size > limits.bytes:
            return f"its files have more than {limits.bytes} bytes"
    return None


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], int]]:
    """All entries below a folder with their depth, a folder before its content."""
    folders = [(folder, 1)]
    while folders:
        place, depth = folders.pop()
        with os.scandir(place) as inside:
            for entry in inside:
                if entry.name not in IGNORED:
                    yield entry, depth
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, depth + 1))


def read_folder(folder: str) -> list[File]:
    """Read all files below a folder, by path. Special files have no content. Raises OSError."""
    return [_read(folder, path) for path in sorted(_paths(folder), key=os.fsencode)]


def _paths(folder: str) -> Iterator[str]:
    for entry, _ in _entries(folder):
        if not entry.is_dir(follow_symlinks=False):
            yield entry.path.removeprefix(folder).lstrip("/")


def _read(folder: str, path: str) -> File:
    full = os.path.join(folder, path)
    mode = os.lstat(full).st_mode
    if stat.S_ISLNK(mode):
        return File(path, os.fsencode(os.readlink(full)), "link")
    if not stat.S_ISREG(mode):
        return File(path, b"", "special")
    with open(os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return File(path, file.read(), "program" if mode & stat.S_IXUSR else "file")


class FilePrint(NamedTuple):
    """A file's fingerprint, which shows later whether it changed."""

    kind: str
    size: int
    digest: str

    @classmethod
    def of(cls, file: File) -> Self:
        digest = sha256(file.content).hexdigest()
        return cls(file.kind, len(file.content), f"{file.kind}:{digest}")


def prints_in(folder: str) -> dict[str, FilePrint]:
    return {path: FilePrint.of(_read(folder, path)) for path in _paths(folder)}


def changes_in(folder: str, before: Mapping[str, FilePrint]) -> list[str]:
    try:
        after = set(_paths(folder))
    except OSError as error:  # too deep for a path, so it was not there before
        return [str(error.filename)]
    differ = before.keys() ^ after
    for path in before.keys() & after:
        facts = os.lstat(os.path.join(folder, path))
        # A file of another size is not read: it may be huge.
        resized = stat.S_ISREG(facts.st_mode) and facts.st_size != before[path].size
        if resized or FilePrint.of(_read(folder, path)) != before[path]:
            differ.add(path)
    return sorted(differ)


def write_folder(folder: str, files: Sequence[File]) -> None:
    """Write files into a folder. Raises OSError, NameUnsafe."""
    for file in files:
        full = os.path.join(folder, relative_name(file.path))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if file.kind == "link":
            os.symlink(file.content, os.fsencode(full))
            continue
        mode = 0o755 if file.kind == "program" else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(full, flags, mode), "wb") as out:
            out.write(file.content)


def read_plain(folder: str, name: str, bytes_max: int) -> bytes | None:
    """Read a plain file. Returns None for links, pipes and larger files."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(os.path.join(folder, name), flags)
    except OSError:
        return None
    facts = os.fstat(opened)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > bytes_max:
        os.close(opened)
        return None
    with open(opened, "rb") as file:
        return file.read(bytes_max)


class NamedFolders:
    """Named folders at their `places`, with the files that were put there."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._prints: dict[str, dict[str, FilePrint]] = {}

    def put(self, folder: str, place: str, files: Sequence[File]) -> None:
        self.places[folder] = place
        os.mkdir(place)
        write_folder(place, files)
        self._prints[folder] = {file.path: FilePrint.of(file) for file in files}

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        return read_plain(self.places[folder], name, bytes_max)

    def changed(self, folder: str) -> list[str]:
        return changes_in(self.places[folder], self._prints[folder])[:100]
