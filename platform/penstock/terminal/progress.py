"""A progress bar on standard error: on a terminal, and nothing in a pipe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """While the block runs; to be told how many are done, and of how many."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what)
        yield lambda done, of: progress.update(bar, completed=done, total=of)
