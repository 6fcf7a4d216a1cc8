"""Requests go before the writer where both are in one process: they share its interpreter, and
somebody waits for their answers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: So long the writer lets requests go first at one place, and in one flush.
_BREAK_SECONDS_MAX = 0.03
_FLUSH_BREAKS_SECONDS_MAX = 0.25
#: A writer that has little rest between flushes must not fall behind by its breaks.
_SHARE_OF_REST = 0.5


class RightOfWay:
    """Who works in this process: requests, on the thread of the event loop, and one flush at a
    time, on that of the writer."""

    def __init__(self) -> None:
        self._requests = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._flushed_s = time.perf_counter()

    @contextmanager
    def of_request(self) -> Iterator[None]:
        """While the block runs, a flush takes breaks."""
        self._requests += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._nobody.set()

    @contextmanager
    def breaks_of_flush(self) -> Iterator["Breaks"]:
        rest_s = time.perf_counter() - self._flushed_s
        try:
            yield Breaks(self._nobody, min(_FLUSH_BREAKS_SECONDS_MAX, rest_s * _SHARE_OF_REST))
        finally:
            self._flushed_s = time.perf_counter()


class Breaks:
    """Those of one flush."""

    def __init__(self, nobody: threading.Event, seconds_max: float) -> None:
        self._nobody = nobody
        #: How long they may take yet.
        self.left_s = seconds_max

    def take(self) -> None:
        """Between steps, which are small. Returns once no request is worked on. Where there is
        always one the flush takes no more breaks: they would only make it later."""
        if self.left_s <= 0 or self._nobody.is_set():
            return
        begun_s = time.perf_counter()
        alone = self._nobody.wait(min(self.left_s, _BREAK_SECONDS_MAX))
        self.left_s = self.left_s - (time.perf_counter() - begun_s) if alone else 0.0
