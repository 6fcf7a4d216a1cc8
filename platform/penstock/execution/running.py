"""How a run goes, on whatever workers: what is given out, what is given again, when it ends."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.errors import PenstockError
from penstock.execution import Done, Result, Task
from penstock.execution.calls import name_of, pack_call, shown, unpack_outcome
from penstock.execution.errors import WorkerLost


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
