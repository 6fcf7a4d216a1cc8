"""The executor: runs one function over many tasks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from penstock.core.errors import PenstockError

if TYPE_CHECKING:  # a sandbox imports this package, and starts once per attempt
    pass

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TaskResult(Generic[Task, Result]):
    task: Task
    result: Result


class Executor(Protocol):
    """Use it as a context manager: afterwards nothing of it runs on. Functions stand at the top of
    a module, so that workers can import them; tasks and results can be pickled."""

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        """Each task as it ends, in no order. Tasks are taken as there is room for them.

        A task whose worker is lost is done again, so it may run more than once, even at the same
        time; it is yielded once. The first error ends the run: tasks under way are waited for and
        yielded, then it is raised: a PenstockError as it was, any other error as TaskFailed.
        Raises WorkerLost after 3 tries, InvalidInput, ExecutorUnreachable."""
        ...

    def close(self) -> None:
        """Give up the tasks under way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


INLINE = "inline"


class ExecutorUnreachable(PenstockError, exit_status=3):
    """The executor {address} cannot be reached: {why}."""


class TaskFailed(PenstockError):
    """The task {task} of {function} failed: {why}."""


class WorkerLost(PenstockError):
    """The task {task} of {function} was given up: its worker was lost {attempts} times, the last
    time because {why}. A task that is too large for the memory of a worker ends like this."""
