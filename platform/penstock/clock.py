"""Time comes from a Clock that is passed in, so that tests need not wait for it."""

import time
from typing import Protocol

MICROSECONDS_PER_SECOND = 1_000_000


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


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, now_us: int = 1_795_219_200_000_000) -> None:
        self._now_us = now_us
        self._elapsed_s = 0.0

    def now_us(self) -> int:
        return self._now_us

    def elapsed_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * MICROSECONDS_PER_SECOND)
        self._elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an operator or a time server does."""
        self._now_us += round(seconds * MICROSECONDS_PER_SECOND)
