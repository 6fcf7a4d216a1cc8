"""Everything that is tested, as real processes on loopback: gateways and writers, Kafka and
PostgreSQL behind proxies, and a store that they share."""

import json
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

from kafka import KafkaAdminClient

from penstock.access.keys import create_key
from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from tests.study.faults.serving import Serving, each
from tests.support.servers.broker import Broker
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import TcpProxy
from tests.support.servers.s3 import s3_server

GATEWAYS, WRITERS, PARTITIONS = 2, 3, 4
LEASE_SECONDS = 2.0
_TOPIC, _DATABASE = "events", "lake"
_TAIL_LINES, _TAIL_CHARS = 15, 300
_START_SECONDS_MAX = 300.0
#: Everything happens often and soon.
_LIMITS = {
    "lease_seconds": LEASE_SECONDS,
    "flush_seconds_max": 0.1,
    "upkeep_seconds": 0.3,
    "compaction_segments_min": 2,
    "compaction_bytes_target": 400_000,
    "collection_grace_seconds": 1,
    "query_seconds_max": 20,
    "query_memory_bytes_max": 512 * 1024 * 1024,
    "known_bytes_max": 200_000,
    "log_partitions": PARTITIONS,
    "log_request_seconds_max": 2,
    "database_statement_seconds_max": 5,
    "database_connections_max": 8,
    "shutdown_seconds_max": 5,
    "disk_reserve_bytes": 0,
}


class Cluster:
    """Ends with the block, whatever happens; its directory stays."""

    def __init__(self, directory: Path, *, store: str = "files") -> None:
        """The directory is one that the user of PostgreSQL may enter."""
        self.directory = directory
        self.broker = Broker(directory / "broker", advertised_port=free_port())
        (directory / "postgres").mkdir()
        self.postgres = PostgresServer(directory / "postgres")
        self.broker_proxy = TcpProxy(
            "127.0.0.1", self.broker.behind_proxy_port, port=self.broker.advertised_port
        )
        self.database_proxy = TcpProxy("127.0.0.1", self.postgres.port)
        self.gateways: list[Serving] = []
        self.writers: list[Serving] = []
        self.key = ""
        self._store = store
        self._store_url = f"file://{directory}/store"
        self._opened = ExitStack()

    @property
    def servings(self) -> list[Serving]:
        return [*self.gateways, *self.writers]

    @property
    def broker_address(self) -> str:
        """Behind the proxy."""
        return self.broker_proxy.address

    @property
    def topic(self) -> str:
        return _TOPIC

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def lake(self) -> Lake:
        """Opened here, past the proxies and the short limits."""
        direct = {
            "database_url": self.postgres.url(_DATABASE),
            "log_url": f"kafka://{self.broker.address}/{_TOPIC}",
            "store_url": self._store_url,
            "log_partitions": PARTITIONS,
        }
        return Lake(load_settings(self.directory / "checks", {}, direct))

    def database(self) -> Database:
        """Behind the proxy, as the processes see it."""
        settings = load_settings(self.directory / "gateway-0", {})
        return Database.of(settings)

    def add_partition(self) -> int:
        """How many there are now. Raises KafkaError."""
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.address)) as admin:
            [found] = admin.describe_topics([_TOPIC])
            count = len(found["partitions"]) + 1
            admin.create_partitions({_TOPIC: count})
        return count

    def tails(self) -> str:
        """The ends of all logs."""
        logs = {one.name: one.log for one in self.servings}
        logs |= {"broker": self.broker.log, "postgres": self.postgres.log}
        return "\n".join(f"--- {name}\n{_tail(log)}" for name, log in logs.items())

    def _start(self) -> None:
        self._opened.callback(self.broker.stop)
        self.broker.start()
        self._opened.callback(self.postgres.stop)
        self.postgres.start()
        self.postgres.execute(f"CREATE DATABASE {_DATABASE} OWNER penstock")
        self._opened.enter_context(self.broker_proxy)
        self._opened.enter_context(self.database_proxy)
        if self._store == "s3":
            server = self._opened.enter_context(s3_server(self.directory / "s3"))
            os.environ.update(server.environment())
            self._store_url = server.store_url("lake")
        with self.lake() as lake:
            upgrade(lake.database)
            assert lake.log.partitions == PARTITIONS  # which makes the topic
            _, self.key = create_key(lake.database, "admin", "default")
        self.gateways = [self._serving("gateway", number) for number in range(GATEWAYS)]
        self.writers = [self._serving("writer", number) for number in range(WRITERS)]
        each(self.servings, Serving.start)
        for one in self.servings:
            if not one.wait_until_up(_START_SECONDS_MAX):
                raise RuntimeError(f"{one.name} did not come up:\n{_tail(one.log)}")

    def _serving(self, role: str, number: int) -> Serving:
        name = f"{role}-{number}"
        data = self.directory / name
        data.mkdir()
        (data / "penstock.toml").write_text(_toml(_LIMITS | self._addresses()))
        made = Serving(name, role, data, free_port())
        self._opened.callback(made.close)
        return made

    def _addresses(self) -> dict[str, Any]:
        direct = self.postgres.url(_DATABASE)
        proxied = direct.replace(f":{self.postgres.port}/", f":{self.database_proxy.port}/")
        log_url = f"kafka://{self.broker_address}/{_TOPIC}"
        return {"database_url": proxied, "log_url": log_url, "store_url": self._store_url}


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(line[:_TAIL_CHARS] for line in lines)


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
