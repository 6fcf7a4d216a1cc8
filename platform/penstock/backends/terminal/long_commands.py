"""What long commands share: progress on standard error, as a bar where that is a terminal and else
as a line now and then; and an end that gives back what they hold."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.backends.terminal.interruption import END_SIGNALS, told_of_end_signals
from penstock.backends.terminal.output import say
from penstock.core.clock import Clock, SystemClock
from penstock.core.visible_text import visible_line

#: From one line of progress to the next, where no bar is shown.
_LINE_SECONDS = 10.0


@contextmanager
def progress_of(what: str, clock: Clock | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function that takes how many are done, and of how many. The block shows it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _ProgressLines(what, clock or SystemClock())
        yield lambda done, of: lines.show(f"{done:,} of {of:,}")
        return
    with Progress(console=console) as progress:
        bar = progress.add_task(_plain(what))
        yield lambda done, of: progress.update(bar, completed=done, total=of)


@contextmanager
def progress_of_bytes(what: str) -> Iterator[Callable[[int], object]]:
    """A function that takes how many bytes more are done. The block shows how many and how fast."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", DownloadColumn(), TransferSpeedColumn())
    if not console.is_terminal:
        lines, bytes_done = _ProgressLines(what, SystemClock()), 0

        def add(count: int) -> None:
            nonlocal bytes_done
            bytes_done += count
            lines.show(f"{bytes_done / 1_000_000:,.0f} MB")

        yield add
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(_plain(what), total=None)
        yield lambda count: progress.advance(task, count)


@contextmanager
def spinner_of(what: str, every_s: float = _LINE_SECONDS) -> Iterator[None]:
    """Shows that something goes on of which nobody knows how much is done."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(_plain(what)):
            yield
        return
    ended, clock = threading.Event(), SystemClock()
    begun_s = clock.elapsed_s()

    def say_so() -> None:
        while not ended.wait(every_s):
            say(f"{what}: {clock.elapsed_s() - begun_s:.0f} s so far")

    lines = threading.Thread(target=say_so, name="progress", daemon=True)
    lines.start()
    try:
        yield
    finally:
        ended.set()
        lines.join()


class _ProgressLines:
    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._last_s = clock.elapsed_s()

    def show(self, state: str) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._last_s >= _LINE_SECONDS:
            self._last_s = now_s
            say(f"{self._what}: {state}")


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(visible_line(text))


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that what is held is given back."""

    def interrupt(*_: object) -> None:
        call_off_abort()
        raise KeyboardInterrupt

    with _handled_by(interrupt, [signal.SIGTERM]):
        yield


def call_off_abort() -> None:
    """To be called by whoever handles SIGTERM. Ray's own handler, which comes first, has the system
    abort the process 3 s later; an end that gives back what is held may take longer."""
    signal.alarm(0)


@contextmanager
def on_end_signal(end: Callable[[], object]) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C call `end`, on another thread; some send them twice."""
    with told_of_end_signals(end), _handled_by(lambda *_: call_off_abort(), END_SIGNALS):
        yield


@contextmanager
def _handled_by(handler: Callable[..., None], numbers: Sequence[int]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
