"""Work of one answer that waits for others, such as for queries, done at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def at_once(first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
    """What each of them gives. Raises what the first that failed raised, once all have ended."""
    if not others:
        return [first()]
    with ThreadPoolExecutor(len(others), "at-once") as threads:
        results = [threads.submit(copy_context().run, other) for other in others]
        return [first(), *(result.result() for result in results)]
