"""Rows of events to one summary row a session: what makes listing sessions cheap."""

import threading
from importlib.resources import files

import duckdb
import pyarrow as pa

from penstock.lake.summary_schema import SESSION_PARTS

_SQL = files("penstock.lake").joinpath("summary.sql").read_text(encoding="utf-8")


class Summariser:
    """Holds a small query engine of its own; safe to share between threads."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._lock = threading.Lock()

    def close(self) -> None:
        self._connection.close()

    def summarise(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return SESSION_PARTS.empty_table()
        with self._lock:
            self._connection.register("rows", rows)
            parts = self._connection.sql(_SQL).to_arrow_table()
            self._connection.unregister("rows")
        return parts.select(SESSION_PARTS.names).cast(SESSION_PARTS)
