"""Commands that hold something while they run, and give it back however they are ended."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that what is held is given back."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def on_end_signal(end: Callable[[], None]) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C call `end`, and no more than that: some send them
    twice."""
    before = {
        number: signal.signal(number, lambda *_: end())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
