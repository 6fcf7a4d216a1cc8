"""The process of an isolated sandbox. It keeps folders in memory, and starts each program in
namespaces that end with it.

It ends with the other end of its socket. It imports little, since it starts once per attempt."""

import json
import os
import pickle
import platform
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EAFNOSUPPORT, ENOSYS, EPERM
from typing import Any, NoReturn

from penstock.backends.execution.confinement import (
    CallRule,
    die_with_parent,
    filter_calls,
    filter_program,
    limit_use,
)
from penstock.backends.execution.guarded_process import Channel
from penstock_jobs.benchmarks.sandbox import root_folder as kernel
from penstock_jobs.benchmarks.sandbox.root_folder import PLACE, make_root
from penstock_jobs.benchmarks.sandbox.sandbox_files import NamedFolders, changes_in

#: A folder that every Linux has and no program needs.
_BASE = "/sys"
#: Folders that programs may write to, bounded by the limits, and folders that they only read.
_SHARED, _GIVEN, _ROOT = f"{_BASE}/shared", f"{_BASE}/given", f"{_BASE}/root"
_EMPTY, _UPPER, _MASK = f"{_BASE}/empty", f"{_BASE}/upper", f"{_BASE}/mask"
_MIB = 1024 * 1024

_POLL_SECONDS = 0.1
#: If programs run as our own user, this process and the two after it count as theirs.
_OWN_PROCESSES = 3

_SMALL_BYTES = 64 * _MIB


def main(end: socket.socket) -> None:
    control = Channel(end)
    die_with_parent()
    try:
        opening = receive_order(control)
        kernel.unshare(kernel.NEW_NAMESPACE_USER)
        send_answer(control, {"unshared": True})
        receive_order(control)  # now the user mapping is written
        kernel.unshare(kernel.NEW_NAMESPACE_MOUNT)
        kernel.keep_mounts_here()
        kernel.mount_empty(_BASE)
        for place in (_SHARED, _GIVEN):
            os.mkdir(place)
            kernel.mount_empty(place, _size_of(opening["disk_bytes"]))
        for place in (_ROOT, _EMPTY, _UPPER, _MASK):
            os.mkdir(place)
        kernel.make_whiteouts(_MASK, opening["masked"])
        os.umask(0o022)
        folders = _SandboxFolders(control, opening)
        send_answer(control, {"ready": True})
        while True:
            name, arguments = receive_order(control)
            send_answer(control, {"done": getattr(folders, f"do_{name}")(**arguments)})
    except EOFError:
        pass
    except OSError as error:
        send_answer(control, {"failed": str(error)})


def _size_of(disk_bytes: int) -> str:
    files = max(disk_bytes // _MIB, 16) * 256
    return f"mode=0755,size={disk_bytes},nr_inodes={files}"


class _SandboxFolders:
    """Carries out the order NAME with `do_NAME`."""

    def __init__(self, control: Channel, opening: Mapping[str, Any]) -> None:
        self._control = control
        self._opening = opening
        self._folders = NamedFolders()

    def do_put(self, folder: str, files: Any, writable: bool) -> None:
        place = f"{_SHARED if writable else _GIVEN}/{folder}"
        self._folders.put(folder, place, files)
        owner = self._opening["owner"]
        if writable and owner is not None:
            os.chown(place, *owner)
            for below, folders, names in os.walk(place):
                for name in (*folders, *names):
                    os.chown(os.path.join(below, name), *owner, follow_symlinks=False)

    def do_run(self, **program: Any) -> None:
        size = _size_of(self._opening["disk_bytes"] + program["disk_bytes_more"])
        kernel.mount("tmpfs", _SHARED, None, kernel.REMOUNT | kernel.MOUNT_PLAIN, size)
        program |= {**self._opening, "root": _ROOT, "empty": _EMPTY, "places": self._folders.places}
        program |= {"mask": _MASK, "upper": self._upper()}
        child = os.fork()
        if child == 0:
            _separate(self._control, program)
        os.waitpid(child, 0)  # everything that the program started ends with it

    def _upper(self) -> str:
        """The folder for what programs write beside their folders, and for mount points."""
        over = self._opening["over"]
        if over is None or not over["writable"]:
            return _UPPER
        return over["kept"] or f"{_SHARED}/.upper"

    def do_read(self, folder: str, name: str, bytes_max: int) -> str | None:
        content = self._folders.read(folder, name, bytes_max)
        return None if content is None else content.decode("latin-1")

    def do_changed(self, folder: str) -> list[str]:
        if os.path.isabs(folder):
            written = f"{self._upper()}/files{folder}"
            changes = changes_in(written, {})[:100] if os.path.isdir(written) else []
        else:
            changes = self._folders.changed(folder)
        return [path.encode(errors="replace").decode() for path in changes]


def _separate(control: Channel, program: Mapping[str, Any]) -> None:
    """Make namespaces, in a process between: a PID namespace begins with its maker's children."""
    die_with_parent()
    try:
        kernel.unshare(kernel.NEW_NAMESPACE_MOUNT | kernel.NEW_NAMESPACES_REST)
        tied, end = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(end)
            _supervise(control, program, tied)
        os.close(tied)
        os.waitpid(first, 0)
    except OSError as error:
        send_answer(control, {"failed": str(error)})
    finally:
        os._exit(0)


def _supervise(control: Channel, program: Mapping[str, Any], tied: int) -> NoReturn:
    """Run as the first process of a program's namespaces. The kernel ends all others with it."""
    try:
        die_with_parent()
        if select.select([tied], [], [], 0)[0]:  # the parent is gone already
            os._exit(1)
        socket.sethostname("sandbox")
        kernel.raise_loopback(program["extra"])
        listening = []
        for address, port in program["listen"]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listening.append(socket.create_server((address, port), family=family, backlog=128))
        uncovered = make_root(program)
        kernel.hide_memory()
        send_answer(control, {"listening": True}, [server.fileno() for server in listening])
        for server in listening:
            server.close()
        filtered = program["filter_without_unix" if uncovered else "call_filter"]
        ended = _watch(control, program, filtered)
        send_answer(control, {"ended": ended | {"uncovered": uncovered}})
    except OSError as error:
        with suppress(OSError):
            send_answer(control, {"failed": str(error)})
    finally:
        os._exit(0)


def _watch(control: Channel, program: Mapping[str, Any], call_filter: bytes) -> dict[str, Any]:
    began = time.monotonic()
    free = os.statvfs("/")
    program = {**program, "free": free.f_bavail * free.f_frsize}
    child = os.fork()
    if child == 0:
        _become(program, call_filter)
    ended, gone = os.pidfd_open(child), control.fileno()
    status, cut = None, None
    while status is None and cut is None:
        left = began + program["seconds"] - time.monotonic()
        wait_s = max(min(left, _POLL_SECONDS), 0)
        # No order comes now, so the control is readable only if its other end is gone.
        if gone in select.select([ended, gone], [], [], wait_s)[0]:
            os._exit(1)
        status = _reap(child)
        if status is None and left <= 0:
            cut = "time"
        elif status is None and _used_bytes() > program["memory_bytes"]:
            cut = "memory"
        elif status is None and program["as_root"]:
            cut = _excess_of_root(program)
    return {"status": status, "cut": cut, "seconds": time.monotonic() - began}


def _excess_of_root(program: Mapping[str, Any]) -> str | None:
    """The limit that a program exceeds, of those that the kernel does not hold for root."""
    if (
        sum(name.isdecimal() for name in os.listdir("/proc"))
        > program["processes"] + _OWN_PROCESSES
    ):
        return "processes"
    kept = program["over"]["kept"] and os.statvfs("/")
    free = kept and kept.f_bavail * kept.f_frsize
    return "disk" if kept and program["free"] - free > program["disk_bytes"] else None


def _reap(child: int) -> int | None:
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(wait_status)
                status = code if code >= 0 else 128 - code
    return status


def _become(program: Mapping[str, Any], call_filter: bytes) -> NoReturn:
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        processes = program["processes"] + (_OWN_PROCESSES if program["owner"] is None else 0)
        bounds = {name: program[name] for name in ("memory_bytes", "seconds")}
        disk_bytes = program["disk_bytes"] + program["disk_bytes_more"]
        limit_use(**bounds, disk_bytes=disk_bytes, processes=processes)
        kernel.drop_rights(program["owner"], of_root=program["as_root"])
        filter_calls(call_filter)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(os.path.join(PLACE, program["cwd"]))
        command = list(program["command"])
        os.execvpe(command[0], command, dict(program["environment"]))
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(127)


def _used_bytes() -> int:
    """The memory of all processes of this namespace but the first.

    The quick sum counts shared pages repeatedly, so it is only trusted if it is small."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pids = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    resident = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            resident += int(file.read().split()[1]) * page_bytes
    if resident < _SMALL_BYTES:
        return resident
    proportional = 0  # with each process's share of shared pages
    for pid in pids:
        with suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            pss = next((line for line in file if line.startswith(b"Pss:")), b"Pss: 0")
            proportional += int(pss.split()[1]) * 1024
    return proportional


def receive_order(source: Channel) -> Any:
    return pickle.loads(source.receive())


def send_answer(to: Channel, answer: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send JSON, which is safe even if a program took over this end. Raises OSError."""
    to.send(json.dumps(answer).encode(), files)


# Limits of programs, and system calls that the kernel refuses to them

_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
#: Mount, cgroup, host name, IPC, user, PID and network. In `clone`, the time namespace's bit is
#: part of a signal's number.
_NAMESPACES = 0x7E020000
_NAMESPACE_OF_TIME = 0x80
_CHANGES = (
    "acct", "adjtimex", "chroot", "clock_adjtime", "clock_settime", "delete_module",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "mount", "mount_setattr", "move_mount", "open_by_handle_at",
    "open_tree", "pivot_root", "quotactl", "quotactl_fd", "reboot", "setns", "settimeofday",
    "swapoff", "swapon", "umount2", "vhangup",
)  # fmt: skip
_WAYS_INTO_THE_KERNEL = (
    "add_key", "bpf", "fanotify_init", "keyctl", "lookup_dcookie", "perf_event_open",
    "request_key", "syslog", "userfaultfd",
)  # fmt: skip
#: Programs do without these if the kernel lacks them. A filter cannot see the namespaces that
#: `clone3` asks for.
_ABSENT = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup")
FORBIDDEN_CALLS = (
    CallRule("clone", EPERM, argument=0, mask=_NAMESPACES),
    CallRule("unshare", EPERM, argument=0, mask=_NAMESPACES | _NAMESPACE_OF_TIME),
    CallRule("socket", EAFNOSUPPORT, argument=0, values=(_UNIX, _IPV4, _IPV6, _NETLINK)),
    CallRule("socketpair", EAFNOSUPPORT, argument=0, values=(_UNIX,)),
    *(CallRule(call, EPERM) for call in (*_CHANGES, *_WAYS_INTO_THE_KERNEL)),
    *(CallRule(call, ENOSYS) for call in _ABSENT),
)
#: Also refused to a program that sees other processes of its user.
FORBIDDEN_BESIDE_OTHERS = tuple(
    CallRule(call, EPERM)
    for call in ("kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace")
)
#: Stream pairs stay connected to each other; datagram sockets may send to any address.
_DATAGRAMS = 0b10
#: The first rule of a call counts.
FORBIDDEN_WITHOUT_UNIX = (
    CallRule("socket", EAFNOSUPPORT, argument=0, values=(_IPV4, _IPV6, _NETLINK)),
    CallRule("socketpair", EAFNOSUPPORT, argument=1, mask=_DATAGRAMS),
)


def call_filter(*, beside_others: bool, unix_sockets: bool = True) -> bytes | None:
    """Make the filter of system calls. Returns None if this machine has none."""
    rules = [*FORBIDDEN_CALLS, *(FORBIDDEN_BESIDE_OTHERS if beside_others else ())]
    if not unix_sockets:
        rules = [*FORBIDDEN_WITHOUT_UNIX, *rules]
    try:
        return filter_program(rules, platform.machine()) if sys.platform == "linux" else None
    except KeyError:
        return None
