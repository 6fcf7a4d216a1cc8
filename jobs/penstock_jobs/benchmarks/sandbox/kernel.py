"""System calls that Python has no function for. Linux only; all raise OSError."""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from functools import cache
from typing import Any

from penstock.execution.confinement import NO_NEW_PRIVILEGES, control

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
#: Becoming root gives no capability, and none is kept or raised; each with the bit that locks it.
_NOTHING_BY_BEING_ROOT = 0b1110_1111

_SET_ADDRESS, _GET_FLAGS, _SET_FLAGS, _UP = 0x8916, 0x8913, 0x8914, 0x1


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, action: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def unshare(namespaces: int) -> None:
    _check(_libc().unshare(namespaces), "a new namespace")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = source, target, kind, options
    *names, settings = (None if text is None else os.fsencode(text) for text in texts)
    _check(_libc().mount(*names, ctypes.c_ulong(flags), settings), f"mounting {target}")


def bind(source: str, target: str) -> None:
    """Show a folder at another place, with all that is mounted below."""
    mount(source, target, None, _BIND | _RECURSIVE)


def keep_mounts_here() -> None:
    """Later mounts are not seen in any other namespace."""
    mount(None, "/", None, _RECURSIVE | _PRIVATE)


def restrict_mounts(target: str, flags: int) -> None:
    """Add flags to a mount and to all below it."""
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    path, data = ctypes.c_char_p(os.fsencode(target)), ctypes.c_char_p(attributes)
    place = (ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(_AT_RECURSIVE))
    size = ctypes.c_size_t(len(attributes))
    result = _libc().syscall(ctypes.c_long(_MOUNT_SETATTR), *place, data, size)
    _check(result, f"restricting the mounts below {target}")


def change_root(root: str) -> None:
    """Afterwards the old root cannot be reached."""
    os.chdir(root)
    _check(_libc().pivot_root(b".", b"."), "a new root")
    _check(_libc().umount2(b".", _DETACH), "leaving the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    _check(_libc().sethostname(name.encode(), ctypes.c_size_t(len(name))), "the host name")


def hide_memory() -> None:
    """Processes of the same user cannot trace this one, nor read its files below /proc/PID."""
    control(_SET_DUMPABLE, 0)


def drop_rights(owner: tuple[int, int] | None) -> None:
    """Become an owner (a user and a group), or stay this user; without any capability either way,
    for ever. Programs with the set-user bit do not change that."""
    control(_CAP_AMBIENT, _CLEAR_ALL)
    for capability in range(_CAPABILITIES_MAX):
        try:
            control(_DROP_FROM_BOUNDING_SET, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel has no more of them
    control(_SET_SECURITY_BITS, _NOTHING_BY_BEING_ROOT)
    if owner is not None:
        user, group = owner
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("=IIIIII", 0, 0, 0, 0, 0, 0)
    _check(_libc().capset(ctypes.c_char_p(header), ctypes.c_char_p(data)), "capabilities")
    control(NO_NEW_PRIVILEGES, 1)


def raise_loopback(addresses: list[str]) -> None:
    """Start the loopback of this namespace, with further IPv4 addresses."""
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
