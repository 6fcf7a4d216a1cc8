"""Clocks. A Clock is passed in, so that tests need not wait."""

import time
from typing import Protocol

SECOND_US = 1_000_000


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970, UTC. May jump, also backwards."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that only moves forward; for ages and time-outs."""
        ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def elapsed_s(self) -> float:
        return time.monotonic()


def duration_text(seconds: float) -> str:
    """Write a duration in its largest unit, such as `2.5 h`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
