"""The executor of one machine with several cores: a task at a time in each worker process.

The processes are ours and not those of the standard library's pool: there the loss of one
worker breaks the pool, and nobody knows whose task it was; and when the caller is killed, its
workers stay for ever. Here each has a socket of its own, whose end tells both."""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Self

from penstock.execution import Done, Result, Task
from penstock.execution.calls import Lost, perform, run_on

_END_SECONDS_MAX = 5.0


class ProcessExecutor:
    """An Executor with worker processes for each run."""

    def __init__(self, *, workers: int, attempts_max: int) -> None:
        self._workers_max = workers or len(os.sched_getaffinity(0))
        self._attempts_max = attempts_max
        self._runs: list[_Processes] = []

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        processes = _Processes(self._workers_max)
        self._runs = [one for one in self._runs if one.in_use()] + [processes]
        return run_on(processes, function, tasks, self._attempts_max)

    def close(self) -> None:
        for processes in self._runs:
            processes.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: "Connection[Any, Any]"
    #: The call that it is at.
    number: int | None = None


class _Processes:
    """Workers that start as they are needed."""

    def __init__(self, workers_max: int) -> None:
        self._workers_max = workers_max
        self._workers: list[_Worker] = []

    def in_use(self) -> bool:
        return bool(self._workers)

    def has_room(self) -> bool:
        return sum(one.number is not None for one in self._workers) < self._workers_max

    def give(self, number: int, call: bytes) -> None:
        worker = next((one for one in self._workers if one.number is None), None)
        if worker is None:
            self._workers.append(worker := _start())
        worker.number = number
        _send(worker, call)

    def wait(self) -> Iterator[tuple[int, bytes | Lost]]:
        busy = {one.connection: one for one in self._workers if one.number is not None}
        for ready in wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            number, worker.number = worker.number, None
            assert number is not None
            try:
                outcome: bytes | Lost = worker.connection.recv_bytes()
            except (EOFError, OSError):
                self._workers.remove(worker)
                outcome = Lost(_ending(worker))
            yield number, outcome

    def drop(self) -> None:
        while self._workers:
            worker = self._workers.pop()
            if worker.number is not None:
                worker.process.kill()
            _ending(worker)


def _start() -> _Worker:
    """It imports from where this process does, whatever its own defaults are."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock.execution.processes", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the caller, who ends its workers
        )
    worker = _Worker(process, ours)
    _send(worker, pickle.dumps(sys.path))
    return worker


def _send(worker: _Worker, message: bytes) -> None:
    with suppress(OSError):  # it is gone, as the next look at its answer tells
        worker.connection.send_bytes(message)


def _ending(worker: _Worker) -> str:
    """End it, where it has not, and say how it ended."""
    worker.connection.close()
    try:
        status = worker.process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        status = worker.process.wait()
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"


def main(file: int) -> None:
    """Answer calls until the caller is gone."""
    os.dup2(2, 1)  # what tasks print is not the caller's answer
    threading.Thread(target=_end_with_caller, args=[file], daemon=True).start()
    connection = Connection(file)
    try:
        sys.path[:] = pickle.loads(connection.recv_bytes())
        while True:
            connection.send_bytes(perform(connection.recv_bytes()))
    except (EOFError, OSError):
        pass


def _end_with_caller(file: int) -> None:
    """Work for a caller that was killed is work for nobody."""
    poll = select.poll()
    poll.register(file, 0)  # a hang-up is always told
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
