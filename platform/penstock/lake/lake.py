"""The lake as one thing: what commands, the server and users' scripts open."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from penstock.database.engine import Database
from penstock.eventlog import EventLog
from penstock.eventlog.opening import open_log
from penstock.events.tenants import TENANT_DEFAULT
from penstock.execution import Executor
from penstock.execution.opening import INLINE, open_executor
from penstock.execution.settings import ExecutionSettings
from penstock.lake.pinned_files import Tails
from penstock.lake.query import Answer, OwnQuery, QueryEngine
from penstock.lake.summary import Summariser
from penstock.settings import MIB, Settings, load_settings
from penstock.storage import ObjectStore
from penstock.storage.opening import open_store

#: Memory for the ends of files that queries read from S3.
TAILS_BYTES_MAX = 32 * MIB


class Lake:
    """Segments, the database that knows them, and the log with what is not in them yet."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database.of(settings)
        self.store: ObjectStore = open_store(settings)
        self.tails = Tails(TAILS_BYTES_MAX)
        self.summariser = Summariser()
        self._log: EventLog | None = None
        self._executor: Executor | None = None

    @property
    def log(self) -> EventLog:
        if self._log is None:
            self._log = open_log(self.settings)
        return self._log

    @property
    def executor(self) -> Executor | None:
        """Where the settings say that heavy work goes; None is here, with what is open already.
        Raises ExecutorUnreachable."""
        if self._executor is None and self.settings.room(ExecutionSettings).executor != INLINE:
            self._executor = open_executor(self.settings)
        return self._executor

    def query(
        self, sql: str | OwnQuery, *, as_of: str | int | None = None, tenant: str = TENANT_DEFAULT
    ) -> "Query":
        """A query to be run; see docs/sql.md for the views."""
        return Query(self, sql, as_of, tenant)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        if self._log is not None:
            self._log.close()
        self.summariser.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Query:
    """Runs each time that its rows are asked for."""

    lake: Lake
    sql: str | OwnQuery
    as_of: str | int | None
    tenant: str

    def arrow(self) -> pa.Table:
        """All rows."""
        with self.run() as answer:
            return answer.batches.read_all()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time: memory stays bounded whatever their number."""
        with self.run() as answer:
            yield from answer.batches

    @contextmanager
    def run(self) -> Iterator[Answer]:
        """The answer with what is known of it, readable until the block ends."""
        lake = self.lake
        engine = QueryEngine(
            settings=lake.settings,
            database=lake.database,
            store=lake.store,
            log=lake.log,
            summariser=lake.summariser,
            tails=lake.tails,
        )
        with engine.run(self.sql, tenant=self.tenant, as_of=self.as_of) as answer:
            yield answer


def open_lake(data: str | Path | None = None) -> Lake:
    """The lake of a data directory; settings come from its file and the environment."""
    return Lake(load_settings(data))
