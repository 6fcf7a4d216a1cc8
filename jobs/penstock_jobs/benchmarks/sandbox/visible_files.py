"""Which files of the machine programs in a sandbox see, besides its system folders, and which not.

Homes are not seen, but for what agents and checks need of one."""

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

#: People may keep programs there, and a sandbox has folders of its own there.
_SCRATCH = ("/tmp/", "/var/tmp/", "/dev/shm/")
_HOMES = "/home"
#: The homes of users that are no people.
_SYSTEM_FOLDERS = {"/", "/bin", "/dev", "/etc", "/opt", "/proc", "/sbin", "/srv", "/usr", "/var"}
#: Absolute paths in a command, as a shell reads it in its simplest form.
_PATHS = re.compile(r"""(?<![^\s='"])/[^\s'";|&<>]+""")


def homes() -> list[str]:
    """The folders with homes of people, and the home of this user."""
    places = {_HOMES, "/root", os.path.realpath(os.path.expanduser("~"))}
    with suppress(KeyError):  # a user that only its number names
        places.add(os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir))
    system = ("/bin/", "/dev/", "/sbin/", "/usr/")
    return sorted(place for place in places - _SYSTEM_FOLDERS if not place.startswith(system))


def own_programs() -> list[str]:
    """What of this Python and of the programs of PATH would not be seen by itself."""
    places = {prefix for prefix in (sys.prefix, sys.base_prefix) if _is_unseen(prefix)}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        home = _unseen_home(folder) if os.path.isabs(folder) else None
        if home not in (None, folder):  # a home that stands in PATH itself is still a home
            prefix = os.path.dirname(folder)
            whole = os.path.basename(folder) == "shims" or not _is_general(prefix)
            places.add(prefix if whole else folder)
    return _with_linked({*places, *map(os.path.realpath, places)})


def _with_linked(places: Iterable[str]) -> list[str]:
    """Also what the links among their programs lead to: a tool of a home is often one."""
    complete, rest = set(places), list(places)
    while rest:
        place = rest.pop()
        inside = os.path.join(place, "bin")
        with suppress(OSError):  # a file; or it is not there
            for entry in os.scandir(inside if os.path.isdir(inside) else place):
                linked = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if os.path.isfile(linked) and _is_unseen(linked):
                    needed = _around(linked)
                    if needed not in complete:
                        complete.add(needed)
                        rest.append(needed)
    return sorted(complete)


def _around(file: str) -> str:
    """What is shown with a file: its folder, or what stands around its `bin`; never a home."""
    folder = os.path.dirname(file)
    if os.path.basename(folder) == "bin" and not _is_general(os.path.dirname(folder)):
        return os.path.dirname(folder)
    return file if _is_general(folder) else folder


def _is_general(folder: str) -> bool:
    """Whether it holds things of many programs: a home, a hidden folder of one, the scratch."""
    home = _unseen_home(folder)
    if f"{folder}/" in _SCRATCH or folder == home:
        return True
    hidden = os.path.dirname(folder) == home and os.path.basename(folder).startswith(".")
    return hidden and not os.path.isfile(os.path.join(folder, "pyvenv.cfg"))


def closed_folder(path: str) -> str | None:
    """The outermost of the folders around a path, and itself, that only its owner may enter."""
    place = "/"
    for name in path.split("/"):
        place = os.path.join(place, name)
        if is_closed(place):
            return place
    return None


def is_closed(place: str) -> bool:
    return os.path.isdir(place) and not os.stat(place).st_mode & stat.S_IXOTH


def _unseen_home(path: str) -> str | None:
    """The home that a path lies in, or the folder that programs may not enter."""
    for home in reversed(homes()):  # the home of this user before that of all
        if home == _HOMES and path.startswith(f"{home}/"):
            return "/".join(path.split("/")[:3])
        if home != _HOMES and f"{path}/".startswith(f"{home}/"):
            return home
    return closed_folder(path) if os.geteuid() == 0 else None


def _is_unseen(path: str) -> bool:
    return path.startswith(_SCRATCH) or _unseen_home(path) is not None


def named_places(command: str) -> list[str]:
    """The folders of files that a command names by absolute paths, where they are not seen by
    themselves."""
    paths = _PATHS.findall(command)
    with suppress(ValueError):  # a shell may take it, or say what is wrong
        # Paths with blanks, or with other characters that a shell would interpret.
        paths += [word for word in shlex.split(command) if word.startswith("/")]
    places = set()
    for path in paths:
        before, back, _ = path.partition("/../")
        # A path with /../ needs the folder that it goes back from.
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
    """These, and the history of the repositories that they lie in. Longer paths come later."""
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
    """The history of a git working tree that lies in another folder, or borrows from one."""
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
