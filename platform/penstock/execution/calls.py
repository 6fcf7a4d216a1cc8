"""How tasks travel to workers of any kind; and the inline executor, whose worker is the caller."""

import pickle
import traceback
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol

from penstock.errors import InvalidInput, PenstockError
from penstock.execution import Executor, Result, Task, TaskFailed, TaskResult, WorkerLost

_SHOWN_CHARS_MAX = 200
#: What pickle raises for a value that cannot be pickled.
_UNFIT = (pickle.PickleError, TypeError, AttributeError, ValueError, RecursionError)


class Workers(Protocol):
    def has_room(self) -> bool: ...
    def give(self, number: int, call: bytes) -> None: ...
    def wait(self) -> Iterable[tuple[int, bytes | str]]:
        """At least one of the calls under way, with its answer. A text is why its worker is gone:
        then nobody knows how far the call came."""

    def drop(self) -> None:
        """Give up the calls under way, and let the workers go. May be called again."""


@dataclass
class _PackedCall:
    number: int
    task: object
    packed: bytes
    attempts: int = 0


class CallExecutor(Executor):
    """Packs its calls, so that what runs on workers of one kind runs on those of others."""

    attempts_max = 1

    @abstractmethod
    def make_workers(self) -> Workers: ...

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        """See Executor. The function is checked at once."""
        return _run(self.make_workers(), function_name(function), tasks, self.attempts_max)


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
            for number, answer in workers.wait():
                call = under_way.pop(number)
                if isinstance(answer, bytes):
                    result, error = pickle.loads(answer)
                    if error is None:
                        yield TaskResult(call.task, result)
                    failure = failure or error
                elif call.attempts < attempts_max:
                    repeated.append(call)
                else:
                    facts = {"task": _show(call.task), "attempts": call.attempts, "why": answer}
                    failure = failure or WorkerLost(function=name, **facts)
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
    why = f"{type(failure).__name__}: {failure} ({where.filename}, line {where.lineno})"
    lines = "".join(traceback.format_exception(failure))
    return pickle.dumps(
        (None, TaskFailed(function=name, task=_show(task), why=why, traceback=lines))
    )


def _show(task: object) -> str:
    text = repr(task)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


class InlineExecutor(CallExecutor):
    def make_workers(self) -> Workers:
        return _CallerThread()

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
