"""What a program sees: the machine's programs, read only, and the folders of its sandbox."""

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from penstock_jobs.benchmarks.sandbox import kernel

#: Where programs find the folders of a sandbox.
PLACE = "/penstock"
#: A sandbox has its own: on the machine others run, listen and store things in these folders.
_REPLACED = ("dev", "proc", "run", "sys", "tmp", PLACE[1:])
_ALSO_EMPTY = ("/var/tmp", "/var/run", "/var/lock")
#: People may keep programs there, and a sandbox has folders of its own there.
_SCRATCH = ("/tmp/", "/var/tmp/", "/dev/shm/")
#: Absolute paths in a command, as a shell reads it in its simplest form.
_PATHS = re.compile(r"""(?<![^\s='"])/[^\s'";|&<>]+""")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_FLAGS = kernel.MOUNT_PLAIN


def make_root(program: Mapping[str, Any]) -> None:
    """Make the root of the file system that a program sees, and go there. Raises OSError."""
    root = program["root"]
    _mount_empty(root)
    _bind_machine(root)
    for path in _ALSO_EMPTY:
        if os.path.isdir(root + path) and not os.path.islink(root + path):
            _mount_empty(root + path)
    _write_hosts(root, program["names"])
    to_nobody = program["owner"] is not None
    if to_nobody:
        _empty_closed(root, program["visible"])
    folders: dict[str, bool] = {**program["folders"], program["home"]: True}
    for folder in folders:
        os.mkdir(f"{root}{PLACE}/{folder}")
    for path in program["visible"]:
        _make_place(root, path)
    kernel.restrict_mounts(root, _FLAGS | kernel.MOUNT_READ_ONLY)
    _make_devices(f"{root}/dev")
    places = program["places"]
    for folder, writable in folders.items():
        _add(places[folder], f"{root}{PLACE}/{folder}", writable=writable)
    for path in ("/tmp", "/dev/shm", "/var/tmp"):
        if os.path.isdir(root + path):
            _add(places[program["scratch"]], root + path, writable=True)
    for path in program["visible"]:
        _make_place(root, path)  # again: by now there is another /tmp
        if os.path.exists(path):
            _show(path, root + path, to_nobody=to_nobody)
    _hide(root, program["hidden"])
    # The last: the kernel refuses it once a part of the machine's own /proc is hidden.
    kernel.mount("proc", f"{root}/proc", "proc", _FLAGS | kernel.MOUNT_NO_PROGRAMS)
    kernel.change_root(root)


def _empty_closed(root: str, visible: Iterable[str]) -> None:
    """Folders that only root may enter, and in which something is shown, hold nothing else."""
    for closed in {f"{root}{closed_folder(path)}" for path in visible}:
        if os.path.isdir(closed):
            _mount_empty(closed)


def _hide(root: str, paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.isdir(root + path):
            _mount_empty(root + path)
            kernel.restrict_mounts(root + path, _FLAGS | kernel.MOUNT_READ_ONLY)
        elif os.path.exists(root + path):
            _add("/dev/null", root + path, writable=False)


def own_programs() -> list[str]:
    """The folders of this Python, and what stands around the folders of PATH, where programs would
    not see them by themselves: agents and checks run with both."""
    places = {prefix for prefix in (sys.prefix, sys.base_prefix) if _is_unseen(prefix)}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        closed = _closed_to_nobody(folder) if os.path.isabs(folder) else None
        if closed not in (None, folder):  # a home that stands in PATH itself is still a home
            prefix = os.path.dirname(folder)
            places.add(folder if prefix == closed else prefix)
    return sorted(places | {os.path.realpath(place) for place in places})


def closed_folder(path: str) -> str | None:
    """The outermost of the folders around a path, and itself, that only its owner may enter."""
    place = "/"
    for name in path.split("/"):
        place = os.path.join(place, name)
        if _is_closed(place):
            return place
    return None


def _is_closed(place: str) -> bool:
    return os.path.isdir(place) and not os.stat(place).st_mode & stat.S_IXOTH


def _closed_to_nobody(path: str) -> str | None:
    """Programs of root run as nobody."""
    return closed_folder(path) if os.geteuid() == 0 else None


def _is_unseen(path: str) -> bool:
    return path.startswith(_SCRATCH) or _closed_to_nobody(path) is not None


def named_places(command: str) -> list[str]:
    """The folders of files that a command names by absolute paths, and that programs would not see
    by themselves: it needs them."""
    paths = _PATHS.findall(command)
    with suppress(ValueError):  # a shell may take it, or say what is wrong
        # Paths with blanks, or with other characters that a shell would interpret.
        paths += [word for word in shlex.split(command) if word.startswith("/")]
    places = set()
    for path in paths:
        real = os.path.realpath(path)
        folder = real if os.path.isdir(real) else os.path.dirname(real)
        if os.path.exists(real) and _is_unseen(real):
            # A file that lies in the scratch of all, or in a home, is shown alone.
            alone = folder + "/" in _SCRATCH or folder == _closed_to_nobody(real)
            places.add(real if alone else folder)
            # A path with /../ needs the folder that it goes back from.
            before, back, _ = path.partition("/../")
            if back and _is_unseen(before):
                places.add(os.path.realpath(before))
    return sorted(places)


def _mount_empty(place: str) -> None:
    kernel.mount("tmpfs", place, "tmpfs", _FLAGS, "mode=0755,size=1m")


def _bind_machine(root: str) -> None:
    for name in os.listdir("/"):
        if name in _REPLACED:
            continue
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{root}/{name}")
            with suppress(OSError):  # one that this user may not enter stays empty
                kernel.bind(f"/{name}", f"{root}/{name}")
    for name in _REPLACED:
        os.mkdir(f"{root}/{name}")


def _make_place(root: str, path: str) -> None:
    if os.path.isdir(path):
        os.makedirs(root + path, exist_ok=True)
    elif os.path.exists(path):
        _make_file(root + path)


def _make_file(place: str) -> None:
    if not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def listeners() -> Iterator[str]:
    """Sockets in the file system. A program that sees one can connect, across networks."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, slash, path = line.rstrip("\n").partition(" /")
            if slash:
                yield f"/{path}"


def _write_hosts(root: str, names: Mapping[str, str]) -> None:
    """Write the names of hosts in the sandbox."""
    place = f"{root}/etc/hosts"
    if not os.path.exists(place):
        return
    known = {"localhost": "127.0.0.1", "sandbox": "127.0.0.1"} | dict(names)
    source = f"{root}{PLACE}/hosts"
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"{number} {name}\n" for name, number in known.items())
    kernel.bind(source, place)


def _make_devices(place: str) -> None:
    kernel.mount("tmpfs", place, "tmpfs", kernel.MOUNT_NO_SUID, "mode=0755,size=1m")
    for name in _DEVICES:
        _make_file(f"{place}/{name}")
        kernel.bind(f"/dev/{name}", f"{place}/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{place}/{name}")
    os.mkdir(f"{place}/shm")
    os.mkdir(f"{place}/pts")
    with suppress(OSError):  # terminals are a comfort
        options = "newinstance,ptmxmode=0666,mode=0620"
        kernel.mount("devpts", f"{place}/pts", "devpts", kernel.MOUNT_NO_SUID, options)
        os.symlink("pts/ptmx", f"{place}/ptmx")
    kernel.restrict_mounts(place, kernel.MOUNT_NO_SUID | kernel.MOUNT_READ_ONLY)


def _add(source: str, place: str, *, writable: bool) -> None:
    kernel.bind(source, place)
    kernel.restrict_mounts(place, _FLAGS | (0 if writable else kernel.MOUNT_READ_ONLY))


def _show(source: str, place: str, *, to_nobody: bool) -> None:
    """To nobody, a folder that only its owner may enter is shown by its content, as it is now."""
    if not (to_nobody and _is_closed(source)):
        _add(source, place, writable=False)
        return
    _mount_empty(place)
    for entry in os.scandir(source):
        inside = f"{place}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), inside)
        else:
            (os.mkdir if entry.is_dir() else _make_file)(inside)
            _show(entry.path, inside, to_nobody=to_nobody)
    kernel.restrict_mounts(place, _FLAGS | kernel.MOUNT_READ_ONLY)


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
