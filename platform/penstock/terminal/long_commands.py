"""What long commands share: a progress bar on standard error, where that is a terminal, and an end
that gives back what they hold."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from penstock.visible_text import visible_line

_ENDS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that takes how many are done, and of how many. The block shows a bar of it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(_plain(what))
        yield lambda done, of: progress.update(bar, completed=done, total=of)


@contextmanager
def progress_of_bytes(what: str) -> Iterator[Callable[[int], object]]:
    """A function that takes how many bytes more are done. The block shows how many and how fast."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task(_plain(what), total=None)
        yield lambda count: progress.advance(task, count)


@contextmanager
def spinner_of(what: str) -> Iterator[None]:
    """Shows that something goes on."""
    from rich.console import Console

    with Console(stderr=True).status(_plain(what)):
        yield


def _plain(text: str) -> str:
    """Text in which nothing is a mark."""
    from rich.markup import escape

    return escape(visible_line(text))


def ended_as_by_ctrl_c() -> AbstractContextManager[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that what is held is given back."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    return on_end_signal(interrupt, [signal.SIGTERM])


@contextmanager
def on_end_signal(end: Callable[[], None], numbers: Sequence[int] = _ENDS) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C call `end`, and no more: some send them twice."""
    before = {number: signal.signal(number, lambda *_: end()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
