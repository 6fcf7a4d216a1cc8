"""Waiting for what other processes and threads bring about."""

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.02


def eventually(holds: Callable[[], object], within_s: float = 180) -> None:
    """Returns as soon as it holds; the time is so long that only a failure needs all of it."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(_LOOK_SECONDS)
