"""The views over the events of a bucket: what a job reads is what a query sees."""

from collections.abc import Iterable
from importlib.resources import files

import duckdb
import pyarrow as pa

_VIEWS = files("penstock.lake").joinpath("views")
_ROWS = files("penstock.lake").joinpath("base", "bucket_rows.sql").read_text(encoding="utf-8")


def bucket_views(rows: pa.Table, tenant: str, names: Iterable[str]) -> dict[str, pa.Table]:
    """Views by name, over the rows of one tenant among these; `sessions` is not among them. The
    rows are whole sessions, as `read_bucket` gives them."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.register("bucket_rows", rows)
        connection.execute("SET VARIABLE tenant = ?", [tenant])
        connection.execute(_ROWS)
        return {name: _read(connection, name) for name in names}


def _read(connection: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    body = _VIEWS.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return connection.sql(body).to_arrow_table()
