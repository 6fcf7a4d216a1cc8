"""The root of the file system that a program sees: the machine's programs, read only, and the
folders of its sandbox.

Folders of the machine are shown through overlays. An overlay has inodes of its own, so a Unix
socket or a named pipe in one is not the one outside, whenever somebody starts to listen there.

It imports the standard library only: it runs once per program."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from penstock_jobs.benchmarks.sandbox import kernel
from penstock_jobs.benchmarks.sandbox.visible_files import closed_folder, is_closed

#: Where programs find the folders of a sandbox.
PLACE = "/penstock"
#: A sandbox has its own: on the machine others run, listen and store things in these folders.
_REPLACED = ("dev", "proc", "run", "sys", "tmp", PLACE[1:])
_ALSO_EMPTY = ("/var/tmp", "/var/run", "/var/lock")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_FLAGS = kernel.MOUNT_PLAIN
#: A folder that holds mounts is shown entry by entry, up to so many.
_ENTRIES_MAX = 1_000
_OCTAL = re.compile(r"\\([0-7]{3})")


def make_root(program: Mapping[str, Any]) -> list[str]:
    """Make the root of the file system that a program sees, and go there. Returns the folders
    through which sockets of the machine can be reached: no overlay can be made of them. Raises
    OSError."""
    root, to_nobody = program["root"], program["owner"] is not None
    _mount_empty(root)
    machine = _MachineFolders(program["empty"], to_nobody=to_nobody)
    machine.show_all(root, program["homes"])
    for path in _ALSO_EMPTY:
        if os.path.isdir(root + path) and not os.path.islink(root + path):
            _mount_empty(root + path)
    _write_hosts(root, program["names"])
    closed = {closed_folder(path) for path in program["visible"]} if to_nobody else set()
    _empty(root, [*program["homes"], *(place for place in closed if place)])
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
        machine.show(path, root + path, opened=to_nobody)
    _hide(root, program["hidden"])
    # The last: the kernel refuses it once a part of the machine's own /proc is hidden.
    kernel.mount("proc", f"{root}/proc", "proc", _FLAGS | kernel.MOUNT_NO_PROGRAMS)
    kernel.change_root(root)
    return machine.uncovered


class _MachineFolders:
    def __init__(self, empty: str, *, to_nobody: bool) -> None:
        """`empty` is an empty folder. To nobody, what only its owner may enter is closed."""
        self._empty = empty
        self._to_nobody = to_nobody
        self._mounts = _mount_points()
        #: Folders that are shown as they are, with their sockets.
        self.uncovered: list[str] = []

    def show_all(self, root: str, left_out: Iterable[str]) -> None:
        for name in os.listdir("/"):
            if name in _REPLACED:
                continue
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
            elif os.path.isdir(f"/{name}"):
                os.mkdir(f"{root}/{name}")
                if f"/{name}" not in left_out:
                    with suppress(OSError):  # one that this user may not enter stays empty
                        self.show(f"/{name}", f"{root}/{name}")
        for name in _REPLACED:
            os.mkdir(f"{root}/{name}")

    def show(self, source: str, place: str, *, opened: bool = False) -> None:
        """Read only. `opened`: a folder that only its owner may enter is shown by its content, as
        it is now."""
        if os.path.isfile(source):
            _add(source, place, writable=False)
        elif not os.path.isdir(source):
            return  # a socket, a pipe, a device
        elif opened and is_closed(source):
            self._show_entries(source, place, list(os.scandir(source)), opened=True)
        elif not any(mount.startswith(f"{source}/") for mount in self._mounts):
            self._cover(source, place)
        elif not (self._to_nobody and is_closed(source)):
            # The kernel makes no overlay of a folder below which others are mounted.
            entries = list(os.scandir(source))
            if len(entries) <= _ENTRIES_MAX:
                self._show_entries(source, place, entries)
            else:
                self._uncover(source, place)

    def _show_entries(
        self, source: str, place: str, entries: list[os.DirEntry[str]], *, opened: bool = False
    ) -> None:
        _mount_empty(place)
        for entry in entries:
            inside = f"{place}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), inside)
            elif entry.is_dir() or entry.is_file():
                (os.mkdir if entry.is_dir() else _make_file)(inside)
                with suppress(PermissionError):  # it stays empty
                    self.show(entry.path, inside, opened=opened)
        kernel.restrict_mounts(place, _FLAGS | kernel.MOUNT_READ_ONLY)

    def _cover(self, source: str, place: str) -> None:
        opened = os.open(source, os.O_PATH)  # its name may hold what options are separated by
        try:
            layers = f"lowerdir={self._empty}:/proc/self/fd/{opened}"
            flags = _FLAGS | kernel.MOUNT_READ_ONLY
            kernel.mount("overlay", place, "overlay", flags, layers)
        except OSError:
            self._uncover(source, place)
        finally:
            os.close(opened)

    def _uncover(self, source: str, place: str) -> None:
        _add(source, place, writable=False)
        self.uncovered.append(source)


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [line.split(" ", 5)[4] for line in file]
    # Blanks and backslashes stand there as octal numbers.
    return [_OCTAL.sub(lambda number: chr(int(number[1], 8)), point) for point in points]


def _empty(root: str, places: Iterable[str]) -> None:
    for place in sorted(set(places)):  # a folder before those in it, which are gone then
        if os.path.isdir(root + place):
            _mount_empty(root + place)


def _hide(root: str, paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.isdir(root + path):
            _mount_empty(root + path)
            kernel.restrict_mounts(root + path, _FLAGS | kernel.MOUNT_READ_ONLY)
        elif os.path.exists(root + path):
            _add("/dev/null", root + path, writable=False)


def _mount_empty(place: str) -> None:
    kernel.mount("tmpfs", place, "tmpfs", _FLAGS, "mode=0755,size=1m")


def _make_place(root: str, path: str) -> None:
    if os.path.isdir(path):
        os.makedirs(root + path, exist_ok=True)
    elif os.path.isfile(path):
        _make_file(root + path)


def _make_file(place: str) -> None:
    if not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


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
