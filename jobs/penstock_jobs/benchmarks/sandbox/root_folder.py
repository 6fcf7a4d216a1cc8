"""The file system that a program sees: the machine's programs, read-only, and its own folders.

Folders of the machine are shown through overlays, which have their own inodes. A Unix socket or
named pipe in one is never the one outside."""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from penstock.backends.execution.confinement import NO_NEW_PRIVILEGES, check_call, control, libc
from penstock_jobs.benchmarks.sandbox.sandbox_files import closed_folder, is_closed

NEW_NAMESPACE_USER = 0x10000000
NEW_NAMESPACE_MOUNT = 0x00020000
#: PIDs, network, IPC, host name and cgroups.
NEW_NAMESPACES_REST = 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000

MOUNT_READ_ONLY, MOUNT_NO_SUID, MOUNT_NO_PROGRAMS, REMOUNT = 1, 2, 8, 32
#: Neither set-user bits nor devices.
MOUNT_PLAIN = MOUNT_NO_SUID | 4
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442  # on all architectures

_SET_DUMPABLE = 4
_DROP_FROM_BOUNDING_SET, _SET_SECURITY_BITS, _CAP_AMBIENT, _CLEAR_ALL = 24, 28, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_MAX = 64
#: Owners and modes of files, signals, users and groups, ports below 1024.
_KEPT_OF_ROOT = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
#: Root gives no capability, and none is kept or raised; each bit with its lock.
_NOTHING_BY_BEING_ROOT = 0b1110_1111

_SET_ADDRESS, _GET_FLAGS, _SET_FLAGS, _UP = 0x8916, 0x8913, 0x8914, 0x1

#: Path of a sandbox's folders for its programs.
PLACE = "/penstock"
#: A sandbox has its own: on the machine, others run, listen and store files there.
REPLACED = ("dev", "proc", "run", "sys", "tmp", PLACE[1:])
#: Beginnings of the top folders that a program sees which may write everywhere.
_SYSTEM = ("bin", "etc", "lib", "opt", "sbin", "usr", "var")
_ALSO_EMPTY = ("/var/tmp", "/var/run", "/var/lock")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
#: A folder with mounts is shown entry by entry, up to this many.
_ENTRIES_MAX = 1_000
_SETTINGS_BYTES_MAX = 1 << 20
_OCTAL = re.compile(r"\\([0-7]{3})")


def make_root(program: Mapping[str, Any]) -> list[str]:
    """Make the root that a program sees, and go there.

    Returns the folders that no overlay covers: sockets of the machine can be reached in them."""
    root, to_nobody = program["root"], program["owner"] is not None
    over = program["over"]
    writable = over is not None and over["writable"]
    machine = _MachineFolders(program, to_nobody=to_nobody)
    machine.show_all(root, program["homes"])
    for path in _ALSO_EMPTY:
        if os.path.isdir(root + path) and not os.path.islink(root + path):
            mount_empty(root + path)
    _write_hosts(root, program["names"])
    closed = {closed_folder(path) for path in program["visible"]} if to_nobody else set()
    # An outer folder first: covering it hides the inner ones.
    for place in sorted({*program["homes"], *filter(None, closed)}):
        # Of homes among the top folders, only what layers hold is shown.
        if os.path.isdir(root + place) and (over is None or place.count("/") > 1):
            mount_empty(root + place)
    folders: dict[str, bool] = {**program["folders"], program["home"]: True}
    for path in (*(f"{PLACE}/{folder}" for folder in folders), *program["also_at"].values()):
        _make_folder(root, path)
    for path in program["visible"]:
        _make_place(root, path)
    restrict_mounts(root, MOUNT_PLAIN | (0 if writable else MOUNT_READ_ONLY))
    _make_devices(f"{root}/dev")
    places = program["places"]
    shown = [(folder, f"{PLACE}/{folder}") for folder in folders]
    for folder, path in (*shown, *program["also_at"].items()):
        _add(places[folder], root + path, writable=folders[folder])
    for path in ("/tmp", "/dev/shm", "/var/tmp"):
        if os.path.isdir(root + path):
            _add(places[program["scratch"]], root + path, writable=True)
    for path in program["visible"]:
        _make_place(root, path)  # again: by now there is another /tmp
        machine.show(path, root + path, opened=to_nobody)
    _hide(root, program["hidden"])
    # Comes last, since the kernel refuses it if a part of the machine's /proc is hidden.
    # Files below /proc/sys obey the machine's root, even if it has no rights.
    proc = MOUNT_PLAIN | MOUNT_NO_PROGRAMS | (MOUNT_READ_ONLY if writable else 0)
    mount("proc", f"{root}/proc", "proc", proc)
    change_root(root)
    return machine.uncovered


class _MachineFolders:
    def __init__(self, program: Mapping[str, Any], *, to_nobody: bool) -> None:
        """`to_nobody` hides folders that only owners may enter."""
        self._empty: str = program["empty"]
        self._mask: str = program["mask"]
        self._upper: str = program["upper"]
        self._over: Mapping[str, Any] | None = program["over"]
        self._to_nobody = to_nobody
        self._mounts = _mount_points()
        #: Folders that are shown without an overlay, with their sockets.
        self.uncovered: list[str] = []

    def show_all(self, root: str, left_out: Iterable[str]) -> None:
        if self._over is not None:
            self._show_layers(root, left_out, self._over)
            return
        mount_empty(root)
        for name in REPLACED:
            os.mkdir(f"{root}/{name}")
        for name in os.listdir("/"):
            if name in REPLACED:
                continue
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
            elif os.path.isdir(f"/{name}"):
                os.mkdir(f"{root}/{name}")
                if f"/{name}" not in left_out:
                    with suppress(OSError):  # a folder that this user may not enter stays empty
                        self.show(f"/{name}", f"{root}/{name}")

    def _show_layers(self, root: str, left_out: Iterable[str], over: Mapping[str, Any]) -> None:
        for name in ("files", "overlay"):
            os.makedirs(f"{self._upper}/{name}", exist_ok=True)
        bind(f"{self._upper}/files", root)
        for name in REPLACED:
            _make_folder(root, f"/{name}")
        mount_empty(root + PLACE)  # no mount point of an earlier program
        if cache := over["cache"]:
            os.mkdir(f"{root}{PLACE}/cache")
            _add(cache, f"{root}{PLACE}/cache", writable=True)
        for home in left_out if over["writable"] else ():
            _make_folder(root, home)
        sources = [*over["layers"], *([] if over["whole"] else [""])]
        for name in sorted({name for source in sources for name in os.listdir(source or "/")}):
            of_machine = not over["whole"] and f"/{name}" not in left_out
            if over["writable"] and not name.startswith(_SYSTEM):
                of_machine = False
            lower = [f"{layer}/{name}" for layer in over["layers"]]
            lower += [f"{self._mask}/{name}", f"/{name}"] if of_machine else []
            lower = [path for path in lower if os.path.lexists(path)]
            if name in REPLACED or not lower:
                continue
            if os.path.islink(lower[0]):
                if not os.path.lexists(f"{root}/{name}"):
                    os.symlink(os.readlink(lower[0]), f"{root}/{name}")
            elif os.path.isdir(lower[0]):
                _make_folder(root, f"/{name}")
                shown = lower == [f"/{name}"] and not over["writable"]
                with suppress(PermissionError):
                    if shown:
                        self.show(f"/{name}", f"{root}/{name}")
                    else:
                        self._lay_over(lower, f"/{name}", f"{root}/{name}")

    def _lay_over(self, lower: list[str], path: str, place: str) -> None:
        divided = path in lower and any(each.startswith(f"{path}/") for each in self._mounts)
        if not divided:
            self._mount_over(lower, path, place)
            return
        # The kernel cannot make an overlay of a folder with mounts below it.
        layers = [each for each in lower if each != path]
        self._mount_over(layers or [self._empty], path, place)
        for entry in os.scandir(path):
            inside, here = f"{path}/{entry.name}", f"{place}/{entry.name}"
            parts = [part for each in layers if os.path.lexists(part := f"{each}/{entry.name}")]
            if any(stat.S_ISCHR(os.lstat(part).st_mode) for part in parts):
                continue  # a layer is without it
            with suppress(OSError):  # what this user may not see is not shown
                if not os.path.lexists(here):
                    _copy_entry(entry, here)
                if entry.is_dir(follow_symlinks=False) and os.path.isdir(here):
                    os.utime(here)  # brings a folder of a layer up
                    self._lay_over([*parts, inside], inside, here)

    def _mount_over(self, lower: list[str], path: str, place: str) -> None:
        upper = f"{self._upper}/files{path}"
        work = f"{self._upper}/overlay/{path.replace('/', '%')}"
        os.makedirs(work, exist_ok=True)
        opened = [os.open(path, os.O_PATH) for path in (*lower, self._empty, upper, work)]
        try:
            *below, above, scratch = (f"/proc/self/fd/{number}" for number in opened)
            options = f"userxattr,lowerdir={':'.join(below)},upperdir={above},workdir={scratch}"
            mount("overlay", place, "overlay", MOUNT_PLAIN, options)
        finally:
            for number in opened:
                os.close(number)

    def show(self, source: str, place: str, *, opened: bool = False) -> None:
        """Show a file or folder, read-only. With `opened`, a folder that only its owner may enter
        is shown by its present content."""
        if os.path.isfile(source):
            _add(source, place, writable=False)
        elif not os.path.isdir(source):
            return  # a socket, a pipe, a device
        elif opened and is_closed(source):
            self._show_entries(source, place, list(os.scandir(source)), opened=True)
        elif not any(mount.startswith(f"{source}/") for mount in self._mounts):
            self._cover(source, place)
        elif not (self._to_nobody and is_closed(source)):
            # The kernel cannot make an overlay of a folder with mounts below it.
            entries = list(os.scandir(source))
            if len(entries) <= _ENTRIES_MAX:
                self._show_entries(source, place, entries)
            else:
                self._uncover(source, place)

    def _show_entries(
        self, source: str, place: str, entries: list[os.DirEntry[str]], *, opened: bool = False
    ) -> None:
        mount_empty(place)
        for entry in entries:
            inside = f"{place}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), inside)
            elif entry.is_dir() or entry.is_file():
                (os.mkdir if entry.is_dir() else _make_file)(inside)
                with suppress(PermissionError):  # it stays empty
                    self.show(entry.path, inside, opened=opened)
        restrict_mounts(place, MOUNT_PLAIN | MOUNT_READ_ONLY)

    def _cover(self, source: str, place: str) -> None:
        opened = os.open(source, os.O_PATH)  # its name may hold a separator of options
        try:
            layers = f"lowerdir={self._empty}:/proc/self/fd/{opened}"
            mount("overlay", place, "overlay", MOUNT_PLAIN | MOUNT_READ_ONLY, layers)
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
    # Blanks and backslashes are written as octal numbers.
    return [_OCTAL.sub(lambda number: chr(int(number[1], 8)), point) for point in points]


def _hide(root: str, paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.isdir(root + path):
            mount_empty(root + path)
            restrict_mounts(root + path, MOUNT_PLAIN | MOUNT_READ_ONLY)
        elif os.path.exists(root + path):
            _add("/dev/null", root + path, writable=False)


def mount_empty(place: str, options: str = "mode=0755,size=1m", flags: int = MOUNT_PLAIN) -> None:
    mount("tmpfs", place, "tmpfs", flags, options)


def _make_place(root: str, path: str) -> None:
    if os.path.isdir(path):
        _make_folder(root, path)
    elif os.path.isfile(path):
        _make_folder(root, os.path.dirname(path))
        _make_file(root + path)


def _make_folder(root: str, path: str) -> None:
    """Make a folder of real folders: links that an earlier program left would lead out of root."""
    place = root
    for name in filter(None, path.split("/")):
        place = f"{place}/{name}"
        if os.path.islink(place) or os.path.isfile(place):
            os.unlink(place)
        if not os.path.isdir(place):
            os.mkdir(place)


def make_whiteouts(place: str, paths: Iterable[str]) -> None:
    """Make a layer without these paths of the machine."""
    for path in paths:
        os.makedirs(os.path.dirname(place + path), exist_ok=True)
        os.mknod(place + path, stat.S_IFCHR, 0)


def _copy_entry(entry: os.DirEntry[str], place: str) -> None:
    """Copy a link, a file that is no larger than settings are, or a folder without its content."""
    facts = entry.stat(follow_symlinks=False)
    if entry.is_dir(follow_symlinks=False):
        os.mkdir(place)
    elif facts.st_size <= _SETTINGS_BYTES_MAX:
        shutil.copyfile(entry.path, place, follow_symlinks=False)
    shutil.copystat(entry.path, place, follow_symlinks=False)
    os.chown(place, facts.st_uid, facts.st_gid, follow_symlinks=False)


def _make_file(place: str) -> None:
    if not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _write_hosts(root: str, names: Mapping[str, str]) -> None:
    place = f"{root}/etc/hosts"
    if not os.path.exists(place):
        return
    known = {"localhost": "127.0.0.1", "sandbox": "127.0.0.1"} | dict(names)
    source = f"{root}{PLACE}/hosts"
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"{number} {name}\n" for name, number in known.items())
    bind(source, place)


def _make_devices(place: str) -> None:
    mount_empty(place, flags=MOUNT_NO_SUID)
    for name in _DEVICES:
        _make_file(f"{place}/{name}")
        bind(f"/dev/{name}", f"{place}/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{place}/{name}")
    os.mkdir(f"{place}/shm")
    os.mkdir(f"{place}/pts")
    with suppress(OSError):  # terminals are optional
        options = "newinstance,ptmxmode=0666,mode=0620"
        mount("devpts", f"{place}/pts", "devpts", MOUNT_NO_SUID, options)
        os.symlink("pts/ptmx", f"{place}/ptmx")
    restrict_mounts(place, MOUNT_NO_SUID | MOUNT_READ_ONLY)


def _add(source: str, place: str, *, writable: bool) -> None:
    bind(source, place)
    restrict_mounts(place, MOUNT_PLAIN | (0 if writable else MOUNT_READ_ONLY))


# System calls without a function in Python. Linux only; all raise OSError


def unshare(namespaces: int) -> None:
    check_call(libc().unshare(namespaces), "a new namespace")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = source, target, kind, options
    *names, settings = (None if text is None else os.fsencode(text) for text in texts)
    check_call(libc().mount(*names, ctypes.c_ulong(flags), settings), f"mounting {target}")


def bind(source: str, target: str) -> None:
    """Show a folder at another place, with all mounts below it."""
    mount(source, target, None, _BIND | _RECURSIVE)


def keep_mounts_here() -> None:
    """Keep later mounts from other namespaces."""
    mount(None, "/", None, _RECURSIVE | _PRIVATE)


def restrict_mounts(target: str, flags: int) -> None:
    """Add flags to a mount and all mounts below it."""
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    path, data = ctypes.c_char_p(os.fsencode(target)), ctypes.c_char_p(attributes)
    place = (ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(_AT_RECURSIVE))
    size = ctypes.c_size_t(len(attributes))
    result = libc().syscall(ctypes.c_long(_MOUNT_SETATTR), *place, data, size)
    check_call(result, f"restricting the mounts below {target}")


def change_root(root: str) -> None:
    """Change the root. The old one cannot be reached afterwards."""
    os.chdir(root)
    check_call(libc().pivot_root(b".", b"."), "a new root")
    check_call(libc().umount2(b".", _DETACH), "leaving the old root")
    os.chdir("/")


def hide_memory() -> None:
    """Keep processes of the same user from tracing this one and from reading its /proc/PID."""
    control(_SET_DUMPABLE, 0)


def drop_rights(owner: tuple[int, int] | None, *, of_root: bool = False) -> None:
    """Drop all capabilities for good, and become the owner (a user and a group) if one is given.

    Programs with the set-user bit cannot change that. With `of_root`, those are kept that a
    package manager needs."""
    control(_CAP_AMBIENT, _CLEAR_ALL)
    for capability in range(_CAPABILITIES_MAX):
        if of_root and capability in _KEPT_OF_ROOT:
            continue
        try:
            control(_DROP_FROM_BOUNDING_SET, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel has no more capabilities
    if not of_root:
        control(_SET_SECURITY_BITS, _NOTHING_BY_BEING_ROOT)
    if owner is not None:
        user, group = owner
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    kept = sum(1 << number for number in _KEPT_OF_ROOT) if of_root else 0
    data = struct.pack("=IIIIII", kept, kept, 0, 0, 0, 0)
    check_call(libc().capset(ctypes.c_char_p(header), ctypes.c_char_p(data)), "capabilities")
    control(NO_NEW_PRIVILEGES, 1)


def raise_loopback(addresses: list[str]) -> None:
    """Start the loopback of this namespace, with additional IPv4 addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, request)
        flags = struct.unpack("16sh14x", answer)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))
        for number, address in enumerate(addresses):
            packed = socket.inet_aton(address)
            name = f"lo:{number}".encode()
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, packed)
            fcntl.ioctl(any_socket, _SET_ADDRESS, request)
