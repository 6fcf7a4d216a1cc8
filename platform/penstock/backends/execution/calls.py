"""Calls that travel to workers, and the executors of one machine: inline, and with processes."""

import os
import pickle
import select
import socket
import threading
import traceback
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from operator import attrgetter
from typing import Any, Protocol

from penstock.backends.execution.executor import (
    Executor,
    Result,
    Task,
    TaskFailed,
    TaskResult,
    WorkerLost,
)
from penstock.backends.execution.guarded_process import Channel, GuardedProcess, describe_status
from penstock.core.arrow_start import start_arrow_light
from penstock.core.errors import InvalidInput, PenstockError

#: Tries of a task whose worker is lost.
_ATTEMPTS_MAX = 3
#: What pickle raises for a value that cannot be pickled.
_UNFIT = (pickle.PickleError, TypeError, AttributeError, ValueError, RecursionError)


class Workers(Protocol):
    def has_room(self) -> bool: ...
    def give(self, number: int, call: bytes) -> None: ...
    def wait(self) -> Iterable[tuple[int, bytes | str]]:
        """Yield at least one call that ended, with its answer. A text says why the worker is gone:
        nobody knows how far the call came."""

    def drop(self) -> None:
        """Give up the calls under way and end the workers. May be called again."""


@dataclass
class _PackedCall:
    number: int
    task: object
    packed: bytes
    attempts: int = 0


class CallExecutor(Executor):
    """An executor that pickles its calls, so that a function runs on workers of every kind."""

    @abstractmethod
    def make_workers(self) -> Workers: ...

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        # The function is checked at once, not with the first result.
        return _run(self.make_workers(), function_name(function), tasks)


def _run(workers: Workers, name: str, tasks: Iterable[Any]) -> Iterator[TaskResult[Any, Any]]:
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
                elif call.attempts < _ATTEMPTS_MAX:
                    repeated.append(call)
                else:
                    facts = {"task": _show(call.task), "attempts": call.attempts, "why": answer}
                    failure = failure or WorkerLost(function=name, **facts)
        if failure:
            raise failure
    finally:
        workers.drop()


def function_name(function: Callable[..., Any]) -> str:
    """Name a function as `module:name`, by which workers find it. Raises InvalidInput."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    full_name = f"{module}:{name}"
    if module == "__main__" or _import(full_name) is not function:
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
    """Do a call on a worker. Returns the pickled result and error, one of them None."""
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
    facts = {"why": why, "traceback": "".join(traceback.format_exception(failure))}
    return pickle.dumps((None, TaskFailed(function=name, task=_show(task), **facts)))


def _show(task: object) -> str:
    text = repr(task)
    return text if len(text) <= 200 else text[:199] + "…"


class InlineExecutor(CallExecutor):
    def make_workers(self) -> Workers:
        return _CallerThread()

    def close(self) -> None:
        """Do nothing: no call is under way outside `run`."""


class _CallerThread:
    _call: tuple[int, bytes] | None = None

    def has_room(self) -> bool:
        return self._call is None

    def give(self, number: int, call: bytes) -> None:
        self._call = number, call

    def wait(self) -> Iterator[tuple[int, bytes]]:
        assert self._call is not None
        (number, call), self._call = self._call, None
        yield number, perform(call)

    def drop(self) -> None:
        self._call = None


# Worker processes with one task at a time. In the standard library's pool the loss of one worker
# breaks all, nobody knows which task was lost, and workers outlive a caller that is killed.

_END_SECONDS_MAX = 5.0


class ProcessExecutor(CallExecutor):
    def __init__(self, *, workers: int) -> None:
        self._workers_max = workers or len(os.sched_getaffinity(0))
        self._runs: list[_Processes] = []

    def make_workers(self) -> Workers:
        processes = _Processes(self._workers_max)
        self._runs = [run for run in self._runs if run.workers] + [processes]
        return processes

    def close(self) -> None:
        for processes in self._runs:
            processes.drop()


class _Worker:
    def __init__(self) -> None:
        self.guarded = GuardedProcess(__name__, environment=os.environ)
        self.channel = Channel(self.guarded.end)
        #: The call that it performs now.
        self.number: int | None = None

    def end(self) -> str:
        """End the process, at once if a call is under way, and say how it ended."""
        status = self.guarded.stop(_END_SECONDS_MAX if self.number is None else 0.0)
        return f"its process ended {describe_status(status)}"


class _Processes:
    def __init__(self, workers_max: int) -> None:
        self._workers_max = workers_max
        self.workers: list[_Worker] = []

    def has_room(self) -> bool:
        return sum(worker.number is not None for worker in self.workers) < self._workers_max

    def give(self, number: int, call: bytes) -> None:
        worker = next((worker for worker in self.workers if worker.number is None), None)
        if worker is None:
            self.workers.append(worker := _Worker())
        worker.number = number
        with suppress(OSError):  # it is gone: reading its answer will say so
            worker.channel.send(call)

    def wait(self) -> Iterator[tuple[int, bytes | str]]:
        busy = [worker for worker in self.workers if worker.number is not None]
        ready = wait([worker.guarded.end for worker in busy])
        for worker in busy:
            if worker.guarded.end not in ready:
                continue
            number, worker.number = worker.number, None
            assert number is not None
            try:
                answer: bytes | str = bytes(worker.channel.receive())
            except EOFError:
                self.workers.remove(worker)
                answer = worker.end()
            yield number, answer

    def drop(self) -> None:
        while self.workers:
            self.workers.pop().end()


def main(end: socket.socket) -> None:
    def end_with_caller() -> None:
        poll = select.poll()
        poll.register(end, 0)  # a hang-up is always reported
        poll.poll()
        os._exit(1)

    threading.Thread(target=end_with_caller, daemon=True).start()
    channel = Channel(end)
    start_arrow_light()
    with suppress(EOFError, OSError):
        while True:
            channel.send(perform(bytes(channel.receive())))
