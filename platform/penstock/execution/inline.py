"""The executor of one machine and one thread: tasks run where they are asked for."""

from collections.abc import Callable, Iterable, Iterator
from typing import Self

from penstock.execution import Done, Result, Task
from penstock.execution.calls import perform, run_on


class InlineExecutor:
    """An Executor in the caller's thread. What it runs also runs on the others."""

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        return run_on(_Here(), function, tasks, attempts_max=1)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Here:
    def __init__(self) -> None:
        self._given: list[tuple[int, bytes]] = []

    def has_room(self) -> bool:
        return not self._given

    def give(self, number: int, call: bytes) -> None:
        self._given.append((number, call))

    def wait(self) -> Iterable[tuple[int, bytes]]:
        number, call = self._given.pop()
        return [(number, perform(call))]

    def drop(self) -> None:
        self._given.clear()
