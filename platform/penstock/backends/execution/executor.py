"""The protocol of an executor, its errors and settings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.settings import GIB, RoomSettings, setting

Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskResult(msgspec.Struct, Generic[Task, Result], frozen=True):
    task: Task
    result: Result


class Executor(Protocol):
    """Runs functions over tasks. Use it as a context manager: nothing runs on after the block.

    Functions stand at the top of a module, so that workers can import them. Tasks and results can
    be pickled."""

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        """Yield each task as it ends, in no order. Tasks are taken as there is room for them.

        A task whose worker is lost is done again: it may run more than once, even at the same time,
        and is yielded once. The first error ends the run. Tasks under way are awaited and yielded,
        then it is raised: a PenstockError as it was, any other as TaskFailed. Raises WorkerLost
        after 3 tries, InvalidInput, ExecutorUnreachable."""
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
    """The task {task} of {function} was given up: its worker was lost {attempts} times, at last
    because {why}. The task may be too large for the memory of a worker."""


# Settings


@dataclass(frozen=True, kw_only=True)
class ExecutionSettings(RoomSettings):
    executor: str = setting(
        "inline",
        "heavy jobs: inline, processes or ray://HOST:PORT",
        "Set it when heavy jobs take longer than you can wait.",
    )
    executor_workers: int = setting(
        0,
        "worker processes; 0 is one for each core",
        "Set it when other programs need some of the cores.",
        minimum=0,
    )
    executor_task_memory_bytes: int = setting(
        GIB,
        "memory that Ray keeps for a task",
        "Raise it when Ray ends tasks for want of memory.",
        minimum=0,
    )
