"""Something that is done again and again, on a thread, while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.database.errors import DatabaseUnreachable


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    """The first time after a pause. A database that cannot be reached is asked the next time."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            with suppress(DatabaseUnreachable):
                work()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
