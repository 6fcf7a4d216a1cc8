"""Items that a thread makes ahead. An item, an error or the end always wakes whoever waits."""

import atexit
from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, Thread
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


#: Those with a thread that runs. One that still reads when the interpreter goes aborts the program.
_open_prefetches: WeakSet["Prefetch[Any]"] = WeakSet()


@atexit.register
def _close_all() -> None:
    for one in list(_open_prefetches):
        one.close()


class PrefetchClosed(Exception):
    """Nobody wants more items. The thread that makes them ends on it."""


class Prefetch(Generic[T]):
    """Iterate over what `make` yields; at most `items_max` wait. `close` ends the thread.

    Where it ends while someone waits for an item, that one gets `Closed`.
    """

    def __init__(self, make: Callable[[], Iterator[T]], items_max: int, name: str) -> None:
        self._make = make
        self._items_max = items_max
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        _open_prefetches.add(self)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed)
            if self._closed:
                raise PrefetchClosed
            if self._items:
                self._changed.notify_all()
                return self._items.popleft()
            if self._error is not None:
                raise self._error
            raise StopIteration

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        self._thread.join()
        _open_prefetches.discard(self)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._make():
                self._put(item)
        except PrefetchClosed:
            pass
        except BaseException as raised:  # noqa: BLE001  # raised again where it is waited for
            error = raised
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()

    def _put(self, item: T) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._items_max or self._closed)
            if self._closed:
                raise PrefetchClosed
            self._items.append(item)
            self._changed.notify_all()
