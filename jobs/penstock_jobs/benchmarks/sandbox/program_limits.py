"""How much of the machine the programs of a sandbox may use, and what the kernel refuses to them.

Programs compile, test, serve and debug: everything that these need is allowed. Refused is what
changes the machine, makes namespaces, or is a way into the kernel that they do not need.
"""

import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Sequence
from errno import EAFNOSUPPORT, ENOSYS, EPERM
from typing import NoReturn

from penstock.execution.confinement import CallRule, filter_calls, filter_program, lower_limits

_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
#: Mount, cgroup, host name, IPC, user, PID and network. For `clone` the bit of the time namespace
#: is a part of a signal's number.
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
#: Programs and libraries do without these where the kernel does not have them. The namespaces that
#: `clone3` asks for stand where a filter cannot read.
_ABSENT = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup")
FORBIDDEN_CALLS = (
    CallRule("clone", EPERM, argument=0, mask=_NAMESPACES),
    CallRule("unshare", EPERM, argument=0, mask=_NAMESPACES | _NAMESPACE_OF_TIME),
    CallRule("socket", EAFNOSUPPORT, argument=0, values=(_UNIX, _IPV4, _IPV6, _NETLINK)),
    CallRule("socketpair", EAFNOSUPPORT, argument=0, values=(_UNIX,)),
    *(CallRule(call, EPERM) for call in (*_CHANGES, *_WAYS_INTO_THE_KERNEL)),
    *(CallRule(call, ENOSYS) for call in _ABSENT),
)
#: Also refused to a program that sees the processes of others who have its user.
FORBIDDEN_BESIDE_OTHERS = tuple(
    CallRule(call, EPERM)
    for call in ("kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace")
)
#: Pairs of streams are connected for ever; what takes any address with each message is not.
_DATAGRAMS = 0b10
#: The first rule of a call counts.
FORBIDDEN_WITHOUT_UNIX = (
    CallRule("socket", EAFNOSUPPORT, argument=0, values=(_IPV4, _IPV6, _NETLINK)),
    CallRule("socketpair", EAFNOSUPPORT, argument=1, mask=_DATAGRAMS),
)


def call_filter(*, beside_others: bool, unix_sockets: bool = True) -> bytes | None:
    """For programs beside which others run or not. None where this machine has no filter."""
    rules = [*FORBIDDEN_CALLS, *(FORBIDDEN_BESIDE_OTHERS if beside_others else ())]
    if not unix_sockets:
        rules = [*FORBIDDEN_WITHOUT_UNIX, *rules]
    try:
        return filter_program(rules, platform.machine()) if sys.platform == "linux" else None
    except KeyError:
        return None


def limit_use(
    *, memory_bytes: int, disk_bytes: int, seconds: float, processes: int | None = None
) -> None:
    """For this process, and for each that it starts; `processes` are those of its user together."""
    limits = {
        # Memory that a program may write to: what it only reserves costs nothing.
        resource.RLIMIT_DATA: memory_bytes,
        # Of files beside the disk: it is full before.
        resource.RLIMIT_FSIZE: 2 * disk_bytes,
        # Ends what outlives the time of the sandbox, and nothing before that.
        resource.RLIMIT_CPU: int(seconds * (os.cpu_count() or 1)) + 1,
        resource.RLIMIT_CORE: 0,
    }
    if processes is not None:
        limits[resource.RLIMIT_NPROC] = processes
    lower_limits(limits)


def plain_command(command: Sequence[str], call_filter: bytes | None, **limits: float) -> list[str]:
    """The command of a process that limits itself and becomes this command, whose environment has
    no influence on that. `limits` are those of `limit_use`."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); import {__name__} as limits"
    arguments = [json.dumps(sys.path), json.dumps(limits), (call_filter or b"").hex(), *command]
    return [sys.executable, "-ISBc", f"{start}; limits.become_limited()", *arguments]


def become_limited() -> NoReturn:
    """What `plain_command` runs."""
    _, limits, call_filter, *command = sys.argv[1:]
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        limit_use(**json.loads(limits))
        if call_filter:
            filter_calls(bytes.fromhex(call_filter))
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
    os._exit(127)
