"""Confinement of this process by the kernel, which nothing in it can lift again: resources on every
Unix, paths (Landlock) and system calls (seccomp) on Linux."""

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from errno import ENOSYS, EPERM
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

#: Files that every process may read: the devices that hold nothing, and where time zones are.
COMMON_FILES = ("/dev/null", "/dev/zero", "/dev/urandom", "/usr/share/zoneinfo")

_SET_DEATH_SIGNAL, NO_NEW_PRIVILEGES = 1, 38


def limit_resources(
    *, memory_bytes: int, cpu_seconds: int, open_files: int, file_bytes: int = 0
) -> None:
    """Bound what the process uses from now on, memory beyond what it has mapped already.
    `file_bytes` is the largest file that it may write."""
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_FSIZE: file_bytes,
    }
    if sys.platform == "linux":  # elsewhere the address space says little about memory
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        values[resource.RLIMIT_AS] = pages * resource.getpagesize() + memory_bytes
    lower_limits(values)


def limit_use(
    *, memory_bytes: int, disk_bytes: int, seconds: float, processes: int | None = None
) -> None:
    """Limit this process and its children. `processes` counts all processes of its user."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them
    limits = {
        # Only memory that a program may write to counts.
        resource.RLIMIT_DATA: memory_bytes,
        # For files outside the sandbox's disk, which is full before.
        resource.RLIMIT_FSIZE: 2 * disk_bytes,
        # Ends processes that outlive the sandbox's time, and none before.
        resource.RLIMIT_CPU: int(seconds * (os.cpu_count() or 1)) + 1,
        resource.RLIMIT_CORE: 0,
    }
    if processes is not None:
        limits[resource.RLIMIT_NPROC] = processes
    lower_limits(limits)


def lower_limits(values: Mapping[int, int]) -> None:
    """Set limits of the module `resource`, here and in all that this process starts."""
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; at once if that is gone."""
    control(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def control(option: int, *values: int) -> None:
    """Call `prctl`. Raises OSError."""
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    check_call(libc().prctl(option, *arguments), "prctl")


def check_call(result: int, action: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


@cache
def libc() -> Any:
    found = ctypes.CDLL(None, use_errno=True)
    found.syscall.restype = ctypes.c_long
    return found


# System calls


class CallRule(NamedTuple):
    """A system call that fails with `error`. With `argument` it fails only if the lower half of
    that argument has a bit of `mask`, or is none of `values`."""

    call: str
    error: int
    argument: int | None = None
    mask: int = 0
    values: tuple[int, ...] = ()


#: Numbers by machine. Calls that are younger have one number everywhere.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202), "accept4": (288, 242), "acct": (163, 89), "add_key": (248, 217),
    "adjtimex": (159, 171), "bind": (49, 200), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220),
    "clone3": (435, 435), "connect": (42, 203), "delete_module": (176, 106), "execve": (59, 221),
    "execveat": (322, 281), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fork": (57, None), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430),
    "fspick": (433, 433), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioperm": (173, None),
    "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "listen": (50, 201),
    "lookup_dcookie": (212, 18), "memfd_create": (319, 279), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "msgget": (68, 186),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41), "prlimit64": (302, 261), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "semget": (64, 190),
    "setns": (308, 268), "settimeofday": (164, 170), "shmget": (29, 194), "socket": (41, 198),
    "socketpair": (53, 199), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116),
    "tgkill": (234, 131), "tkill": (200, 130), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vfork": (58, None), "vhangup": (153, 58),
}  # fmt: skip
#: The machine's column in that table, and its number in the kernel's records.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD_WORD, _JUMP_EQUAL, _JUMP_SET, _JUMP_AT_LEAST, _JUMP, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x05, 6
_ALLOW, _FAIL, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
#: From here on x86 numbers the calls of its 32-bit pointers a second time.
_SECOND_NUMBERS = 0x40000000
_SET_SECCOMP, _FILTER = 22, 2


def forbid_calls(rules: Iterable[CallRule]) -> bool:
    """Make these calls fail in this process and all that it starts. False where the kernel
    cannot."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    with suppress(OSError):
        filter_calls(filter_program(rules, platform.machine()))
        return True
    return False


def filter_calls(program: bytes) -> None:
    """Apply a filter to this process and all that it starts. Raises OSError."""
    control(NO_NEW_PRIVILEGES, 1)
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    check_call(libc().prctl(_SET_SECCOMP, _FILTER, header, 0, 0), "a filter of calls")


def filter_program(rules: Iterable[CallRule], machine: str) -> bytes:
    """Compile the rules to the kernel's filter: blocks that return or fall through to the next."""
    column, architecture = _MACHINES[machine]
    killed = _step(_RETURN, _KILL_PROCESS)
    program = [_step(_LOAD_WORD, 4), _step(_JUMP_EQUAL, architecture, when_true=1), killed]
    program.append(_step(_LOAD_WORD, 0))
    if machine == "x86_64":
        program += [_step(_JUMP_AT_LEAST, _SECOND_NUMBERS, when_false=1), killed]
    for rule in rules:
        number = _CALLS[rule.call][column]
        if number is not None:
            block = _block(rule)
            program += [_step(_JUMP_EQUAL, number, when_false=len(block)), *block]
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _block(rule: CallRule) -> list[bytes]:
    fails = _step(_RETURN, _FAIL | rule.error)
    if rule.argument is None:
        return [fails]
    load = _step(_LOAD_WORD, 16 + 8 * rule.argument)
    allows = _step(_RETURN, _ALLOW)
    if rule.mask:
        return [load, _step(_JUMP_SET, rule.mask, when_false=1), fails, allows]
    checks = [
        _step(_JUMP_EQUAL, value, when_true=len(rule.values) - index)
        for index, value in enumerate(rule.values)
    ]
    return [load, *checks, fails, allows]


def _step(code: int, value: int, *, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, when_true, when_false, value)


#: What the C library starts a thread with. Other children could outlive their work.
_THREAD_FLAGS = (0x3D0F00, 0x7D0F00)
#: Calls that a tenant's work in a process of its own does not need: other processes, programs,
#: sockets, files by handle, and ways into the kernel.
ALONE = (
    *(
        CallRule(call, EPERM)
        for call in (
            "accept", "accept4", "add_key", "bind", "bpf", "connect", "execve", "execveat", "fork",
            "io_uring_setup", "kcmp", "keyctl", "kill", "listen", "memfd_create", "mount", "msgget",
            "open_by_handle_at", "perf_event_open", "pidfd_getfd", "pidfd_open",
            "pidfd_send_signal", "process_vm_readv", "process_vm_writev", "ptrace", "request_key",
            "rt_sigqueueinfo", "rt_tgsigqueueinfo", "semget", "setns", "shmget", "socket",
            "socketpair", "tgkill", "tkill", "unshare", "userfaultfd", "vfork",
        )
    ),
    CallRule("clone", EPERM, argument=0, values=_THREAD_FLAGS),
    CallRule("clone3", ENOSYS),  # its flags are out of sight: the C library then uses clone
    CallRule("prlimit64", EPERM, argument=0, values=(0,)),  # limits of its own alone
)  # fmt: skip


# Files


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_BELOW_PATH = 1
#: Rights over files, and how many of them each version of Landlock knows.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_NEWEST = 16


def limit_files(readable: Sequence[str], writable: Sequence[str] = ()) -> bool:
    """Let this process open nothing but what lies at or below these paths. Missing paths are left
    out. False where the kernel cannot."""
    version = libc().syscall(_CREATE_RULESET, None, 0, 1) if sys.platform == "linux" else 0
    if version < 1:
        return False
    rights = (1 << _RIGHTS.get(version, _RIGHTS_NEWEST)) - 1
    attributes = struct.pack("Q", rights)
    ruleset = libc().syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE, _READ_FILE | _READ_FOLDER)
        for path in writable:
            change = (_READ_FILE | _WRITE_FILE | _TRUNCATE) & rights
            _allow(ruleset, path, change, rights & ~_EXECUTE)
        control(NO_NEW_PRIVILEGES, 1)
        return bool(libc().syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, file_rights: int, folder_rights: int) -> None:
    with suppress(FileNotFoundError):
        opened = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        try:
            rights = folder_rights if Path(path).is_dir() else file_rights
            libc().syscall(_ADD_RULE, ruleset, _BELOW_PATH, struct.pack("=Qi", rights, opened), 0)
        finally:
            os.close(opened)


# A command that confines itself


def plain_command(command: Sequence[str], call_filter: bytes | None, **limits: float) -> list[str]:
    """Make a command that limits itself with `limit_use`, then becomes the given command. The
    environment cannot change that."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); import {__name__} as limits"
    arguments = [json.dumps(sys.path), json.dumps(limits), (call_filter or b"").hex(), *command]
    return [sys.executable, "-ISBc", f"{start}; limits.become_limited()", *arguments]


def become_limited() -> NoReturn:
    _, limits, call_filter, *command = sys.argv[1:]
    try:
        limit_use(**json.loads(limits))
        if call_filter:
            filter_calls(bytes.fromhex(call_filter))
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
    os._exit(127)
