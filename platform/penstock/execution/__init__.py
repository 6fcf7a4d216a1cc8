"""The executor: runs one function over many tasks, here, in processes or on a cluster."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Done(Generic[Task, Result]):
    """A task that ended well."""

    task: Task
    result: Result


class Executor(Protocol):
    """Where heavy work is done. Use as a context manager: nothing of it runs on afterwards.

    The function stands at the top of a module, so that a worker anywhere can import it; tasks
    and results are plain values that can be pickled. All twins refuse everything else alike.
    """

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        """Each task as it ends, in no order. Tasks are asked for as there is room for them, so
        that there may be any number.

        A task whose worker is lost (killed, out of memory, its machine gone) is done again, so
        it may run more than once, even at the same time; it is given back once. The first error
        ends the run: tasks under way are waited for and given back, then it is raised. An error
        of our family comes as it was raised, any other as TaskFailed. Raises WorkerLost after
        3 tries, InvalidInput, ExecutorUnreachable."""
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...
