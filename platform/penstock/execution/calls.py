"""How tasks travel to workers of any kind; and the inline executor, whose worker is the caller."""

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from penstock.errors import InvalidInput, PenstockError
from penstock.execution import Executor, Result, Task, TaskResult
from penstock.execution.errors import TaskFailed, WorkerLost

_SHOWN_CHARS_MAX = 200
#: What pickle raises for a value that cannot be pickled.
_UNFIT = (pickle.PickleError, TypeError, AttributeError, ValueError, RecursionError)


class WorkerLoss(NamedTuple):
    """The worker of a call is gone, and nobody knows how far the call came."""

    why: str


class Workers(Protocol):
    """The workers of one run. Calls are numbered."""

    def has_room(self) -> bool: ...
    def give(self, number: int, call: bytes) -> None: ...
    def wait(self) -> Iterable[tuple[int, bytes | WorkerLoss]]:
        """The outcomes of at least one of the calls under way."""

    def drop(self) -> None:
        """Give up the calls under way, and let the workers go. May be called again."""


@dataclass
class _PackedCall:
    number: int
    task: object
    packed: bytes
    attempts: int = 0


def run_on(
    workers: Workers, function: Callable[[Task], Result], tasks: Iterable[Task], attempts_max: int
) -> Iterator[TaskResult[Task, Result]]:
    """See Executor.run. The function is checked at once."""
    return _run(workers, function_name(function), tasks, attempts_max)


def _run(
    workers: Workers, name: str, tasks: Iterable[Any], attempts_max: int
) -> Iterator[TaskResult[Any, Any]]:
    new = enumerate(tasks)
    repeated: deque[_PackedCall] = deque()
    under_way: dict[int, _PackedCall] = {}
    failure: PenstockError | None = None

    def next_call() -> _PackedCall | None:
        if repeated:
            return repeated.popleft()
        for number, task in new:
            try:
                return _PackedCall(number, task, pickle.dumps((name, task)))
            except _UNFIT as error:
                raise InvalidInput(what=f"The task {_show(task)}", why=str(error)) from None
        return None

    try:
        while True:
            while failure is None and workers.has_room() and (call := next_call()):
                call.attempts += 1
                under_way[call.number] = call
                workers.give(call.number, call.packed)
            if not under_way:
                break
            for number, outcome in workers.wait():
                call = under_way.pop(number)
                if not isinstance(outcome, WorkerLoss):
                    result, error = pickle.loads(outcome)
                    if error is None:
                        yield TaskResult(call.task, result)
                    failure = failure or error
                elif call.attempts < attempts_max:
                    repeated.append(call)
                else:
                    failure = failure or WorkerLost(
                        task=_show(call.task), function=name, attempts=call.attempts,
                        why=outcome.why,
                    )  # fmt: skip
        if failure:
            raise failure
    finally:
        workers.drop()


def function_name(function: Callable[..., Any]) -> str:
    """`module:name`, by which any worker finds the function. Raises InvalidInput."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    full_name = f"{module}:{name}"
    if module in (None, "__main__") or name is None or _import(full_name) is not function:
        why = (
            "workers import it by its name, so it has to stand at the top of a module that they can"
            " import, not in a script, in another function or in a lambda"
        )
        raise InvalidInput(what=f"The function {name or function!r} of {module}", why=why)
    return full_name


def find_function(name: str) -> Callable[..., Any]:
    """Raises InvalidInput where it is not there."""
    if (function := _import(name)) is None:
        why = "there is none of this name here; workers need the same packages as their caller"
        raise InvalidInput(what=f"The function {name}", why=why)
    return function


def _import(name: str) -> Callable[..., Any] | None:
    module, _, path = name.partition(":")
    try:
        function: Callable[..., Any] = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        return None
    return function


def perform(call: bytes) -> bytes:
    """On a worker. Returns the pickled result and error, one of them None."""
    name: str = "a function"
    task: object = None
    try:
        name, task = pickle.loads(call)
        return pickle.dumps((find_function(name)(task), None))
    except PenstockError as error:
        with suppress(*_UNFIT):  # unless a fact of it cannot be pickled
            return pickle.dumps((None, error))
        failure: BaseException = error
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the caller gets it, whatever it is
        failure = error
    where = traceback.extract_tb(failure.__traceback__)[-1]
    failed = TaskFailed(
        function=name,
        task=_show(task),
        why=f"{type(failure).__name__}: {failure} ({where.filename}, line {where.lineno})",
        traceback="".join(traceback.format_exception(failure)),
    )
    return pickle.dumps((None, failed))


def _show(task: object) -> str:
    text = repr(task)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


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
