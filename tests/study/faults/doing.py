"""Faults, done to a cluster: each on a thread of its own, one at a time for each target."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kafka.errors import KafkaError

from tests.study.faults.cluster import Cluster
from tests.study.faults.schedule import (
    BROKER,
    BROKER_NETWORK,
    DATABASE,
    DATABASE_NETWORK,
    TOPIC,
    Fault,
)
from tests.study.faults.serving import Serving
from tests.support.servers.broker import Broker
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import TcpProxy

#: The target has the fault as long as the block goes on.
Doing = AbstractContextManager[None]
_GROWTH_TRIES, _GROWTH_PAUSE_SECONDS = 60, 0.5


class Doer:
    """Does faults and tells of each when it begins and is over."""

    def __init__(self, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self.done: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self._cluster = cluster
        self._tell = tell
        self._servings = {one.name: one for one in cluster.servings}
        self._one_at_a_time = {name: threading.Lock() for name in self._targets()}
        self._threads: list[threading.Thread] = []

    def begin(self, fault: Fault) -> None:
        thread = threading.Thread(target=self._do, args=(fault,), name=str(fault))
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Wait until all is healed."""
        for thread in self._threads:
            thread.join()

    def _targets(self) -> list[str]:
        return [*self._servings, BROKER, DATABASE, BROKER_NETWORK, DATABASE_NETWORK, TOPIC]

    def _do(self, fault: Fault) -> None:
        try:
            with self._one_at_a_time[fault.target]:
                self._tell(f"{fault.target}: {fault.kind} for {fault.for_s:.2f} s")
                with self._doing(fault):
                    time.sleep(fault.for_s)
                self._tell(f"{fault.target}: {fault.kind} is over")
            role = fault.target.rstrip("0123456789-")
            self.done[f"{role}: {fault.kind}"] += 1
        except BaseException as failure:  # noqa: BLE001 the run raises it
            self.failures.append(failure)

    def _doing(self, fault: Fault) -> Doing:
        cluster = self._cluster
        if fault.target in self._servings:
            return _to_process(self._servings[fault.target], fault.kind)
        if fault.target in (BROKER_NETWORK, DATABASE_NETWORK):
            of_broker = fault.target == BROKER_NETWORK
            proxy = cluster.broker_proxy if of_broker else cluster.database_proxy
            return _to_network(proxy, fault.kind)
        if fault.target == TOPIC:
            return self._growing()
        server = cluster.broker if fault.target == BROKER else cluster.postgres
        return _to_process(server, fault.kind)

    @contextmanager
    def _growing(self) -> Iterator[None]:
        """It may take until the broker is there."""
        for tries_left in reversed(range(_GROWTH_TRIES)):
            try:
                with self._one_at_a_time[BROKER]:
                    count = self._cluster.add_partition()
            except (KafkaError, OSError):
                if not tries_left:
                    raise
                time.sleep(_GROWTH_PAUSE_SECONDS)
            else:
                self._tell(f"the topic has {count} partitions")
                break
        yield


@contextmanager
def _to_process(target: Serving | Broker | PostgresServer, kind: str) -> Iterator[None]:
    if kind == "pause":
        target.pause()
        yield
        target.resume()
    else:
        end = {"kill": target.kill, "stop": target.stop}[kind]
        end()
        yield
        target.start()


@contextmanager
def _to_network(proxy: TcpProxy, kind: str) -> Iterator[None]:
    {"cut": proxy.cut, "stall": proxy.stall, "lose replies": proxy.lose_replies}[kind]()
    yield
    proxy.flow()
