"""What a process used, by the kernel's count."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    cpu_s: float
    peak_bytes: int
    resident_bytes: int


def usage_of(pid: int) -> Usage:
    """CPU seconds of all threads so far, and memory."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    sizes = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in status.splitlines()
        if line.startswith(("VmHWM", "VmRSS"))
    }
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(cpu_s, sizes["VmHWM"], sizes["VmRSS"])


def usage_of_all(pid: int) -> Usage:
    """What this process and all below it used. Memory is what they hold now."""
    held = _held_bytes(pid) + bytes_below(pid)
    return Usage(tree_cpu_s(pid), held, held)


def bytes_below(pid: int) -> int:
    """What the processes below this one hold, shared pages divided among those that share them."""
    return sum(map(_held_bytes, _below(pid)))


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all that it started, those that ended included."""
    return sum(map(_cpu_s, [pid, *_below(pid)]))


def _cpu_s(pid: int) -> float:
    with suppress(OSError):  # it ended meanwhile
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0


def _below(pid: int) -> Iterator[int]:
    parents = [pid]
    while parents:
        parent = parents.pop()
        with suppress(OSError):  # it ended meanwhile
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = [*map(int, (thread / "children").read_text("ascii").split())]
                parents += children
                yield from children


def _held_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def sync_seconds(folder: Path, block: bytes, count: int) -> list[float]:
    """How long each of so many appended blocks takes to be durable."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(block)
            file.flush()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return taken


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process for the work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
