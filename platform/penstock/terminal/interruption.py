"""Commands that hold something while they run, and give it back however they are ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that what is held is given back."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
