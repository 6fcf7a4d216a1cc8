"""The executor of one machine and one thread: tasks run in the caller's thread."""

from collections.abc import Callable, Iterable, Iterator

from penstock.execution import Executor, Result, Task, TaskResult
from penstock.execution.calls import perform, run_on


class InlineExecutor(Executor):
    """Packs calls as the others do, so that what runs here runs there too."""

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        return run_on(_CallerThread(), function, tasks, attempts_max=1)

    def close(self) -> None:
        """Nothing is under way outside of `run`."""


class _CallerThread:
    def __init__(self) -> None:
        self._calls: list[tuple[int, bytes]] = []

    def has_room(self) -> bool:
        return not self._calls

    def give(self, number: int, call: bytes) -> None:
        self._calls.append((number, call))

    def wait(self) -> Iterable[tuple[int, bytes]]:
        number, call = self._calls.pop()
        return [(number, perform(call))]

    def drop(self) -> None:
        self._calls.clear()
