"""What other processes do with a log: scripts, since a test that forked would share its locks."""

import signal
import subprocess
import sys

SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
from penstock.core.errors import PenstockError
from penstock.backends.eventlog.local import LocalEventLog

def open_log(path, partitions=1, **limits):
    limits = {"file_bytes_max": 64 << 20, "bytes_max": 1 << 30} | limits
    return LocalEventLog(Path(path), partitions=partitions, **limits)

def values_of(log, partition=0):
    found, offset = [], 0
    while entries := log.read(partition, offset, 1 << 16):
        found += [value for entry in entries for value in entry.values]
        offset = entries[-1].next_offset
    return found

def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())

"""


def start(script: str, *arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", SCRIPT + script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out.splitlines()


def hear(process: subprocess.Popen[str]) -> str:
    """The next line that it says."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End it as a crash does; what it had said by then."""
    assert process.stdout is not None
    process.send_signal(signal.SIGKILL)
    # Not by communicate(): it asks the pipe alone, and hear() may have taken more from the pipe
    # than the one line that it gave.
    said = process.stdout.read().splitlines()
    process.communicate(timeout=300)
    return said
