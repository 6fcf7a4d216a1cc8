"""How fast a statement may write what it cannot keep in memory.

The event log shares the disk with it. An acknowledgement waits for a sync, and a sync waits for
what the file system has yet to write of other files: of gigabytes, for a tenth of a second each
time. Who writes too much is stopped for a while, and what it wrote goes to the disk at once:
the system would gather half a minute of it."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: So much is written at full speed: most statements that do not fit into memory miss by less.
FREE_BYTES = 64 << 20
#: How often it is looked at what statements have written.
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class SpillRate:
    """Of one statement. Zero is no limit."""

    bytes_per_second: int
    started_s: float

    def exceeded(self, written_bytes: int, now_s: float) -> bool:
        allowed = FREE_BYTES + self.bytes_per_second * (now_s - self.started_s)
        return self.bytes_per_second > 0 and written_bytes > allowed


def written_by(pid: int) -> int:
    """Bytes that this process gave the disk to write; 0 where the system does not say."""
    try:
        counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    _, _, count = counters.partition("\nwrite_bytes: ")
    return int(count.partition("\n")[0] or 0)


def begin_writing(folder: str) -> None:
    """Have the system write what these files hold, and wait for nothing."""
    if sys.platform != "linux":
        return
    with suppress(OSError):  # a statement removes its files whenever it likes
        for file in os.scandir(folder):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
