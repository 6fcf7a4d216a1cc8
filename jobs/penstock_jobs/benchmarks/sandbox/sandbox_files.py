"""Files of sandboxes: folders as values, and the machine's files that programs see.

No link is followed when a folder is read, written or compared. Homes are hidden, except for parts
that agents and checks need."""

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
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


def text_of(file: File) -> str:
    """Decode a file; empty for links and what holds no text."""
    is_text = file.kind != "link" and b"\0" not in file.content
    return file.content.decode(errors="replace") if is_text else ""


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


# The machine's files that programs see, besides system folders

#: People may keep programs here, but a sandbox has its own folders.
_SCRATCH = ("/tmp/", "/var/tmp/", "/dev/shm/")
_HOMES = "/home"
#: Files of package managers, locked rather than secret.
_PACKAGES = ("/var/cache/apt/", "/var/cache/ldconfig", "/var/lib/apt/", "/var/lib/dpkg/")
#: Homes of system users.
_SYSTEM_FOLDERS = {"/", "/bin", "/dev", "/etc", "/opt", "/proc", "/sbin", "/srv", "/usr", "/var"}
#: Absolute paths in a simple shell command.
_PATHS = re.compile(r"""(?<![^\s='"])/[^\s'";|&<>]+""")


def homes() -> list[str]:
    """The folders of people's homes, and the home of this user."""
    places = {_HOMES, "/root", os.path.realpath(os.path.expanduser("~"))}
    with suppress(KeyError):  # a user without a name
        places.add(os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir))
    system = ("/bin/", "/dev/", "/sbin/", "/usr/")
    return sorted(place for place in places - _SYSTEM_FOLDERS if not place.startswith(system))


def system_path() -> str:
    """The folders of PATH that a sandbox shows to everybody, after the usual ones."""
    usual = [
        f"{place}{kind}" for place in ("/usr/local/", "/usr/", "/") for kind in ("sbin", "bin")
    ]
    others = filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))
    return os.pathsep.join(
        dict.fromkeys([*usual, *(path for path in others if not _is_unseen(path))])
    )


def own_programs() -> list[str]:
    """Hidden folders of this Python and of programs in PATH, which have to be shown."""
    places = {prefix for prefix in (sys.prefix, sys.base_prefix) if _is_unseen(prefix)}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        home = _unseen_home(folder) if os.path.isabs(folder) else None
        if home not in (None, folder):  # a home in PATH itself stays hidden
            prefix = os.path.dirname(folder)
            whole = os.path.basename(folder) == "shims" or not _is_general(prefix)
            places.add(prefix if whole else folder)
    return _with_linked({*places, *map(os.path.realpath, places)})


def _with_linked(places: Iterable[str]) -> list[str]:
    """Add the targets of links among the programs: tools in a home are often links."""
    complete, rest = set(places), list(places)
    while rest:
        place = rest.pop()
        inside = os.path.join(place, "bin")
        with suppress(OSError):  # a file, or missing
            for entry in os.scandir(inside if os.path.isdir(inside) else place):
                linked = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if os.path.isfile(linked) and _is_unseen(linked):
                    needed = _around(linked)
                    if needed not in complete:
                        complete.add(needed)
                        rest.append(needed)
    return sorted(complete)


def _around(file: str) -> str:
    """The folder to show for a file: its own, or the one around its `bin`; never a home."""
    folder = os.path.dirname(file)
    if os.path.basename(folder) == "bin" and not _is_general(os.path.dirname(folder)):
        return os.path.dirname(folder)
    return file if _is_general(folder) else folder


def _is_general(folder: str) -> bool:
    """Whether many programs keep files in a folder: a home, a hidden folder in it, a scratch."""
    home = _unseen_home(folder)
    if f"{folder}/" in _SCRATCH or folder == home:
        return True
    hidden = os.path.dirname(folder) == home and os.path.basename(folder).startswith(".")
    return hidden and not os.path.isfile(os.path.join(folder, "pyvenv.cfg"))


def closed_folder(path: str) -> str | None:
    """The outermost folder on a path that only its owner may enter."""
    place = "/"
    for name in path.split("/"):
        place = os.path.join(place, name)
        if is_closed(place):
            return place
    return None


def is_closed(place: str) -> bool:
    return os.path.isdir(place) and not os.stat(place).st_mode & stat.S_IXOTH


@cache
def unreadable_paths() -> list[str]:
    """The machine's settings and data that only some users may read."""
    found = []
    for top in ("/etc", "/var"):
        for folder, folders, files in os.walk(top):
            for name in [*folders, *files]:
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                needed = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
                if not mode & needed and not path.startswith(_PACKAGES):
                    found.append(path)
            folders[:] = [name for name in folders if os.path.join(folder, name) not in found]
    return found


def _unseen_home(path: str) -> str | None:
    """The home that a path lies in, or the closed folder on it."""
    for home in reversed(homes()):  # this user's home before the folder of all homes
        if home == _HOMES and path.startswith(f"{home}/"):
            return "/".join(path.split("/")[:3])
        if home != _HOMES and f"{path}/".startswith(f"{home}/"):
            return home
    return closed_folder(path) if os.geteuid() == 0 else None


def _is_unseen(path: str) -> bool:
    return path.startswith(_SCRATCH) or _unseen_home(path) is not None


def named_places(command: str) -> list[str]:
    """Hidden folders of files that a command names by absolute paths."""
    paths = _PATHS.findall(command)
    with suppress(ValueError):  # the shell will judge the command
        # Quoted paths, with blanks or other special characters.
        paths += [word for word in shlex.split(command) if word.startswith("/")]
    places = set()
    for path in paths:
        before, back, _ = path.partition("/../")
        # A path with /../ needs the folder before it.
        if back and os.path.exists(path) and _is_unseen(before):
            places.add(os.path.realpath(before))
        for place in {os.path.realpath(path), *([] if back else [os.path.normpath(path)])}:
            if not os.path.exists(place) or not _is_unseen(place):
                continue
            if not os.path.isdir(place):
                places.add(_around(place))
            elif place != _unseen_home(place):
                places.add(place)
    return _with_linked(places)


def hidden_places(paths: Iterable[str]) -> list[str]:
    """The paths, and the history of the repositories that hold them. Longer paths come later."""
    places: set[str] = set()
    for path in paths:
        folder = os.path.realpath(path)
        if os.path.lexists(folder):
            places.add(folder)
        while folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
            for name in (".git", ".hg", ".svn", ".jj"):
                place = os.path.join(folder, name)
                if os.path.lexists(place):
                    places |= {os.path.realpath(place), *_linked_histories(place)}
    return sorted(places - {"/"})


def _linked_histories(place: str) -> Iterator[str]:
    """The history that a Git working tree keeps in, or borrows from, another folder."""
    git = place
    if os.path.isfile(place) and (named := _first_line(place).removeprefix("gitdir:").strip()):
        git = os.path.join(os.path.dirname(place), named)
        yield os.path.realpath(git)
    common = os.path.join(git, _first_line(os.path.join(git, "commondir")) or ".")
    yield os.path.realpath(common)
    if borrowed := _first_line(os.path.join(common, "objects", "info", "alternates")):
        yield os.path.realpath(os.path.join(common, "objects", borrowed))


def _first_line(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        return file.readline().strip()
    return ""
