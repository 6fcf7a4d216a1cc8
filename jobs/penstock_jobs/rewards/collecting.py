"""The garbage collector, while a bucket is computed."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector. A bucket makes millions of small objects that stay until it is done,
    and no cycles to speak of: looking through them again and again costs a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
