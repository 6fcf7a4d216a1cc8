"""The executor of one machine with several cores: worker processes with one task at a time.

In the standard library's pool the loss of one worker breaks all, nobody knows which task was lost,
and workers outlive a caller that is killed. Here each worker has a socket of its own."""

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import wait

from penstock.arrow_start import start_without_pandas
from penstock.execution.calls import CallExecutor, Workers, perform
from penstock.execution.guarded_process import Channel, GuardedProcess, describe_status

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


class _Worker:
    def __init__(self) -> None:
        self.guarded = GuardedProcess(__name__, environment=os.environ)
        self.channel = Channel(self.guarded.end)
        #: The call that it performs now.
        self.number: int | None = None

    def give(self, number: int, call: bytes) -> None:
        self.number = number
        with suppress(OSError):  # it is gone: reading its answer will say so
            self.channel.send(call)

    def end(self) -> str:
        """End it, at once where nobody waits for its work, and say how it ended."""
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
        worker.give(number, call)

    def wait(self) -> Iterator[tuple[int, bytes | str]]:
        busy = {
            worker.channel.fileno(): worker for worker in self.workers if worker.number is not None
        }
        for ready in wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
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
        """Nobody needs the work of a caller that was killed."""
        poll = select.poll()
        poll.register(end, 0)  # a hang-up is always reported
        poll.poll()
        os._exit(1)

    threading.Thread(target=end_with_caller, daemon=True).start()
    channel = Channel(end)
    start_without_pandas()
    with suppress(EOFError, OSError):
        while True:
            channel.send(perform(bytes(channel.receive())))
