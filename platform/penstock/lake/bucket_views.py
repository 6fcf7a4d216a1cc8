"""The views over the events of a bucket: what a job reads is what a query sees."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

import duckdb
import pyarrow as pa

_VIEWS = files("penstock.lake").joinpath("views")
_ROWS = files("penstock.lake").joinpath("base", "bucket_rows.sql").read_text(encoding="utf-8")


def bucket_views(
    rows: pa.Table,
    tenant: str,
    names: Iterable[str],
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    where: Mapping[str, str] | None = None,
) -> dict[str, pa.Table]:
    """Views by name, over the rows of one tenant among these; `sessions` is not among them. The
    rows are whole sessions, as `read_bucket` gives them. Of a view that is named there, only the
    `columns`, and only rows `where` a condition in SQL holds: what is left out costs nothing."""
    columns, where = columns or {}, where or {}
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.register("bucket_rows", rows)
        connection.execute("SET VARIABLE tenant = ?", [tenant])
        connection.execute(_ROWS)
        return {
            name: _read(connection, name, columns.get(name, ()), where.get(name, "true"))
            for name in names
        }


def _read(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str], where: str
) -> pa.Table:
    body = _VIEWS.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    chosen = ", ".join(f'"{column}"' for column in columns) or "*"
    return connection.sql(f"SELECT {chosen} FROM (\n{body}\n) WHERE {where}").to_arrow_table()
