"""A call as bytes, and its outcome as bytes: what travels to a worker and back."""

import pickle
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from penstock.errors import InvalidInput, PenstockError
from penstock.execution import Done, Result, Task
from penstock.execution.errors import TaskFailed, WorkerLost

_SHOWN_CHARS_MAX = 200
#: What pickling says of a value that cannot be pickled.
_UNFIT = (pickle.PickleError, TypeError, AttributeError, ValueError, RecursionError)


def name_of(function: Callable[..., Any]) -> str:
    """`module:name`, by which any worker finds the function. Raises InvalidInput."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    found = f"{module}:{name}"
    if module is None or name is None or module == "__main__" or _find(found) is not function:
        raise InvalidInput(
            what=f"The function {name or function!r} of {module}",
            why="workers import it by its name, so it has to stand at the top of a module that "
            "they can import, not in a script, in another function or in a lambda",
        )
    return found


def function_named(name: str) -> Callable[..., Any]:
    """What `name_of` gave a name to. Raises InvalidInput where it is not there."""
    if (function := _find(name)) is None:
        why = "there is none of this name here; workers need the same packages as their caller"
        raise InvalidInput(what=f"The function {name}", why=why)
    return function


def _find(name: str) -> Callable[..., Any] | None:
    module, _, path = name.partition(":")
    try:
        found: Callable[..., Any] = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        return None
    return found


def pack_call(name: str, task: object) -> bytes:
    """Raises InvalidInput for a task that cannot travel."""
    try:
        return pickle.dumps((name, task))
    except _UNFIT as error:
        raise InvalidInput(what=f"The task {shown(task)}", why=str(error)) from None


def perform(call: bytes) -> bytes:
    """Do it, on a worker; an error is an outcome like any other."""
    name = "a function"
    task: object = None
    try:
        name, task = pickle.loads(call)
        return pickle.dumps((function_named(name)(task), None))
    except PenstockError as error:
        return _pack_error(error, name, task)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the caller gets it, whatever it is
        return pickle.dumps((None, _failed(error, name, task)))


def unpack_outcome(outcome: bytes) -> tuple[Any, PenstockError | None]:
    """The result, or the error in its place."""
    result, error = pickle.loads(outcome)
    return result, error


def _pack_error(error: PenstockError, name: str, task: object) -> bytes:
    try:
        return pickle.dumps((None, error))
    except _UNFIT:  # a fact that cannot travel
        return pickle.dumps((None, _failed(error, name, task)))


def _failed(error: BaseException, name: str, task: object) -> TaskFailed:
    where = traceback.extract_tb(sys.exc_info()[2])[-1]
    return TaskFailed(
        function=name,
        task=shown(task),
        why=f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
        traceback="".join(traceback.format_exception(error)),
    )


def shown(task: object) -> str:
    """A task in a message."""
    text = repr(task)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


class Lost(NamedTuple):
    """The worker is gone, and nobody knows how far it came."""

    why: str


class Workers(Protocol):
    """The workers of one run. Calls are numbered."""

    def has_room(self) -> bool: ...

    def give(self, number: int, call: bytes) -> None: ...

    def wait(self) -> Iterable[tuple[int, bytes | Lost]]:
        """The outcomes of at least one of the calls under way."""
        ...

    def drop(self) -> None:
        """Give up the calls under way, and let the workers go. May be called again."""
        ...


@dataclass
class _Call:
    number: int
    task: object
    packed: bytes
    attempts: int = 0


def run_on(
    workers: Workers,
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    attempts_max: int,
) -> Iterator[Done[Task, Result]]:
    """See Executor.run."""
    name = name_of(function)
    return _Run(workers, name, tasks, attempts_max).go()


class _Run:
    def __init__(
        self, workers: Workers, name: str, tasks: Iterable[Task], attempts_max: int
    ) -> None:
        self._workers = workers
        self._name = name
        self._tasks = enumerate(tasks)
        self._attempts_max = attempts_max
        self._under_way: dict[int, _Call] = {}
        self._again: deque[_Call] = deque()
        self._failure: PenstockError | None = None

    def go(self) -> Iterator[Done[Task, Result]]:
        try:
            self._give()
            while self._under_way:
                for number, outcome in self._workers.wait():
                    call = self._under_way.pop(number)
                    if isinstance(outcome, Lost):
                        self._lost(call, outcome)
                        continue
                    result, error = unpack_outcome(outcome)
                    if error is None:
                        yield Done(call.task, result)  # type: ignore[arg-type]
                    else:
                        self._failure = self._failure or error
                self._give()
            if self._failure:
                raise self._failure
        finally:
            self._workers.drop()

    def _give(self) -> None:
        """As many calls as there is room for."""
        while self._failure is None and self._workers.has_room():
            if (call := self._next()) is None:
                return
            call.attempts += 1
            self._under_way[call.number] = call
            self._workers.give(call.number, call.packed)

    def _next(self) -> _Call | None:
        if self._again:
            return self._again.popleft()
        for number, task in self._tasks:
            return _Call(number, task, pack_call(self._name, task))
        return None

    def _lost(self, call: _Call, lost: Lost) -> None:
        if call.attempts < self._attempts_max:
            self._again.append(call)
        else:
            self._failure = self._failure or WorkerLost(
                task=shown(call.task), function=self._name, attempts=call.attempts, why=lost.why
            )
