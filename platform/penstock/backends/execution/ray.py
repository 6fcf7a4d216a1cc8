"""The executor of many machines: tasks on a Ray cluster. This machine has to be a node of it.

Ray's own retries are off, since `CallExecutor` tries a lost task again for every executor."""

import socket
from collections.abc import Iterator
from typing import Any

from penstock.backends.execution.calls import CallExecutor, Workers, perform
from penstock.backends.execution.executor import ExecutorUnreachable, TaskFailed
from penstock.core.errors import ExtraMissing, one_line

_CONNECT_SECONDS_MAX = 10.0
#: The most tasks that Ray is given at a time.
_INFLIGHT_MAX = 64


class RayExecutor(CallExecutor):
    """An Executor on the cluster at `address`: HOST:PORT of its head, or `auto`."""

    def __init__(self, address: str, task_memory_bytes: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ExtraMissing(what="The executor on Ray", extra="ray") from error

        #: A process has one connection; the code that made it closes it.
        self._owns_connection = not ray.is_initialized()
        if self._owns_connection:
            host, _, port = address.rpartition(":")
            quiet: Any = {"configure_logging": False, "log_to_driver": False}
            try:
                if host and port.isdigit():  # Ray itself would try for minutes
                    socket.create_connection((host, int(port)), _CONNECT_SECONDS_MAX).close()
                ray.init(address=address, namespace="penstock", **quiet)
            except (OSError, RuntimeError, ValueError) as error:  # Ray has no error for this
                why = (
                    f"{one_line(error)}; name the cluster's head, usually with port 6379, and run"
                    " this on a node of the cluster"
                )
                raise ExecutorUnreachable(address=f"ray://{address}", why=why) from error
        self._perform = ray.remote(perform).options(
            num_cpus=1, memory=task_memory_bytes, max_retries=0, name="penstock"
        )

    def make_workers(self) -> Workers:
        return _ClusterWorkers(self._perform)

    def close(self) -> None:
        if self._owns_connection:
            import ray

            self._owns_connection = False
            ray.shutdown()  # cancels the tasks under way


class _ClusterWorkers:
    def __init__(self, perform: Any) -> None:
        self._perform = perform
        self._numbers: dict[Any, int] = {}

    def has_room(self) -> bool:
        return len(self._numbers) < _INFLIGHT_MAX

    def give(self, number: int, call: bytes) -> None:
        self._numbers[self._perform.remote(call)] = number

    def wait(self) -> Iterator[tuple[int, bytes | str]]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        under_way = list(self._numbers)
        ray.wait(under_way, num_returns=1)
        for ready in ray.wait(under_way, num_returns=len(under_way), timeout=0)[0]:
            number = self._numbers.pop(ready)
            try:
                answer: bytes | str = ray.get(ready)
            except RayTaskError as error:  # `perform` raises nothing: it could not be imported
                why = str(error).strip().splitlines()[-1]
                raise TaskFailed(function="penstock", task="on Ray", why=why) from error
            except RayError as error:
                answer = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            yield number, answer

    def drop(self) -> None:
        # The tasks run to their end. Cancelling one as it ends would end this process (Ray 2.60).
        self._numbers.clear()
