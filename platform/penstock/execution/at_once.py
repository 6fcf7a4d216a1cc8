"""Work of one answer that waits for others, such as for queries, done at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def at_once(first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
    """What each of them gives; they start in their order. Raises what the first that failed raised,
    once all have ended."""
    if not others:
        return [first()]
    with ThreadPoolExecutor(1 + len(others), "at-once") as threads:
        results = [threads.submit(copy_context().run, work) for work in (first, *others)]
        return [result.result() for result in results]
