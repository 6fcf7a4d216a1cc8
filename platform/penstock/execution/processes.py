"""The executor of one machine with several cores: worker processes with one task at a time.

In the standard library's pool the loss of one worker breaks all, nobody knows which task was lost,
and workers outlive a caller that is killed. Here each worker has a socket of its own."""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from penstock.arrow_start import start_without_pandas
from penstock.execution.calls import CallExecutor, Workers, perform

_END_SECONDS_MAX = 5.0


class ProcessExecutor(CallExecutor):
    def __init__(self, *, workers: int, attempts_max: int) -> None:
        self._workers_max = workers or len(os.sched_getaffinity(0))
        self.attempts_max = attempts_max
        self._runs: list[_Processes] = []

    def make_workers(self) -> Workers:
        processes = _Processes(self._workers_max)
        self._runs = [run for run in self._runs if run.workers] + [processes]
        return processes

    def close(self) -> None:
        for processes in self._runs:
            processes.drop()


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: "Connection[Any, Any]"
    #: The call that it performs now.
    number: int | None = None

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # it is gone: reading its answer will say so
            self.connection.send_bytes(message)

    def end(self) -> str:
        """Wait until it has ended, or end it, and say how it ended."""
        self.connection.close()
        try:
            status = self.process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process ended with status {status}"


class _Processes:
    """Workers that start when they are needed."""

    def __init__(self, workers_max: int) -> None:
        self._workers_max = workers_max
        self.workers: list[_Worker] = []

    def has_room(self) -> bool:
        return sum(worker.number is not None for worker in self.workers) < self._workers_max

    def give(self, number: int, call: bytes) -> None:
        worker = next((worker for worker in self.workers if worker.number is None), None)
        if worker is None:
            self.workers.append(worker := _start_worker())
        worker.number = number
        worker.send(call)

    def wait(self) -> Iterator[tuple[int, bytes | str]]:
        busy = {worker.connection: worker for worker in self.workers if worker.number is not None}
        for ready in wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            number, worker.number = worker.number, None
            assert number is not None
            try:
                answer: bytes | str = worker.connection.recv_bytes()
            except (EOFError, OSError):
                self.workers.remove(worker)
                answer = worker.end()
            yield number, answer

    def drop(self) -> None:
        while self.workers:
            worker = self.workers.pop()
            if worker.number is not None:
                worker.process.kill()
            worker.end()


def _start_worker() -> _Worker:
    """It imports from the same places as this process, whatever its own defaults are."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the caller, who ends its workers
        )
    worker = _Worker(process, ours)
    worker.send(pickle.dumps(sys.path))
    return worker


def main(file: int) -> None:
    """What a worker process runs: it answers calls until the caller is gone."""

    def end_with_caller() -> None:
        """Nobody needs the work of a caller that was killed."""
        poll = select.poll()
        poll.register(file, 0)  # a hang-up is always reported
        poll.poll()
        os._exit(1)

    os.dup2(2, 1)  # what tasks print must not look like the caller's output
    threading.Thread(target=end_with_caller, daemon=True).start()
    connection = Connection(file)
    with suppress(EOFError, OSError):
        sys.path[:] = pickle.loads(connection.recv_bytes())
        start_without_pandas()
        while True:
            connection.send_bytes(perform(connection.recv_bytes()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
