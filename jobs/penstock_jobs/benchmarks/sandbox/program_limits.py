"""How much of the machine the programs of a sandbox may use; and how one in a plain sandbox starts.

It imports the standard library only: it starts once per program."""

import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from penstock_jobs.benchmarks.sandbox import kernel


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
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


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
            kernel.filter_calls(bytes.fromhex(call_filter))
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
    os._exit(127)
