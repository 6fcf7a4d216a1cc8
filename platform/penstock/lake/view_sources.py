"""The views that queries read: those of the lake, and those that rooms above it bring.

A room names each of its views in the entry point group `penstock.views`, with a function that
binds what its views read. The SQL of a view is `views/NAME.sql` beside that function's module. No
module of a room is imported before a query reads one of its views.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.lake.pinned_files import PinnedFiles
from penstock.lake.statements import Preparation

_LAKE = "penstock.lake"
_SUFFIX = ".sql"
#: Views over the events and sessions of the lake.
LAKE_VIEWS = frozenset(
    entry.name.removesuffix(_SUFFIX)
    for entry in files(_LAKE).joinpath("views").iterdir()
    if entry.name.endswith(_SUFFIX)
)
_TIME = pa.timestamp("us", tz="UTC")
#: Of the rows of a bucket: its views take longer to plan than to fill.
_FEW_BYTES = 1 << 20
#: The lines below `-- Columns:` in the SQL of a view.
_COLUMNS = re.compile(r"^--   (\S+(?:, \S+)*)  +(\S.*)$", re.MULTILINE)


def view_names() -> frozenset[str]:
    return LAKE_VIEWS | _room_views().keys()


@cache
def _room_views() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="penstock.views")}


@cache
def view_sql(name: str) -> str:
    entry = _room_views().get(name)
    room = entry.module.rpartition(".")[0] if entry else _LAKE
    return files(room).joinpath("views", name + _SUFFIX).read_text(encoding="utf-8")


def column_meanings(view: str) -> list[tuple[list[str], str]]:
    """What the columns of a view mean, as its SQL file says. Columns on one line share it."""
    header = view_sql(view).partition("-- Columns:\n")[2]
    return [(names.split(", "), meaning) for names, meaning in _COLUMNS.findall(header)]


def relation_sql(name: str) -> str:
    """The statement that creates a relation which several views of the lake read."""
    return files(_LAKE).joinpath("base", name + _SUFFIX).read_text(encoding="utf-8")


@dataclass
class ViewSources:
    """Binds what views read to the connection that one query will have."""

    connection: Preparation
    files: PinnedFiles
    database: Database
    tenant: str
    snap: int
    #: The time that the snap stands for; None is now.
    moment: int | None
    _views: set[str] = field(default_factory=set)

    def bind_query(self, name: str, query: sa.Select[Any]) -> None:
        """A relation of what the metadata database answers now."""
        # Tables keep a time in microseconds, in a column named `at` or `…_at`.
        types = {column.name: _arrow_type(column) for column in query.selected_columns}
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        arrays = [
            pa.array(values, pa.int64()).cast(_TIME) if kind == _TIME else pa.array(values, kind)
            for values, kind in zip(columns, types.values(), strict=True)
        ]
        self.connection.register(name, pa.Table.from_arrays(arrays, schema=pa.schema(types)))

    def bind_files(
        self,
        name: str,
        file_names: Sequence[str],
        schema: pa.Schema,
        *,
        with_paths: bool = False,
    ) -> list[str]:
        """A relation of the rows of these Parquet files; of none, it has the columns of `schema`.
        The column `filename` says which of the returned paths a row is from, if `with_paths`."""
        if not file_names:
            if with_paths:
                schema = schema.append(pa.field("filename", pa.string()))
            self.connection.register(name, schema.empty_table())
            return []
        paths = self.bind_paths(name, file_names)
        option = ", filename = true" if with_paths else ""
        rows = f"SELECT * FROM read_parquet(getvariable('{name}_files'){option})"
        self.connection.execute(f"CREATE VIEW {name} AS {rows}")
        return paths

    def bind_paths(self, name: str, file_names: Sequence[str]) -> list[str]:
        """The variable `NAME_files`: what a statement of our own may read of these files."""
        paths = self.files.paths(file_names)
        self.connection.paths += paths
        self.connection.execute(f"SET VARIABLE {name}_files = ?", [paths])
        return paths

    def known(self, at: sa.Column[int]) -> sa.ColumnElement[bool]:
        """Rows with an earlier time than that of the query: what came later is not seen."""
        return sa.true() if self.moment is None else at <= self.moment

    def create_view(self, name: str, sql: str | None = None) -> None:
        """A view over what is bound already, by its file or by this SQL. One that is there stays
        as it is."""
        if name not in self._views:
            self._views.add(name)
            self.connection.execute(f'CREATE VIEW "{name}" AS {sql or view_sql(name)}')


#: Binds what these views of a room read.
BindViews = Callable[[ViewSources, frozenset[str]], None]


def bind_room_views(sources: ViewSources, views: frozenset[str]) -> None:
    """Have each room bind those of its views that are among these."""
    rooms: dict[BindViews, set[str]] = {}
    for name in views & _room_views().keys():
        rooms.setdefault(_room_views()[name].load(), set()).add(name)
    for bind_views, names in rooms.items():
        bind_views(sources, frozenset(names))


def _arrow_type(column: sa.ColumnElement[Any]) -> pa.DataType:
    match column.type:
        case sa.BigInteger():
            return _TIME if f"_{column.name}".endswith("_at") else pa.int64()
        case sa.Integer():
            return pa.int32()
        case sa.Float():
            return pa.float64()
        case sa.Boolean():
            return pa.bool_()
    return pa.string()


def bucket_views(
    rows: pa.Table,
    tenant: str,
    names: Iterable[str],
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    where: Mapping[str, str] | None = None,
) -> dict[str, pa.Table]:
    """Views of the lake over one tenant's rows among these; `sessions` cannot be among them.

    The rows are whole sessions, as `read_bucket` gives them: a job sees what a query sees. Of a
    view that is named there, only the `columns`, and only rows `where` a condition in SQL holds:
    what is left out costs nothing."""
    columns, where = columns or {}, where or {}
    few = rows.nbytes <= _FEW_BYTES
    with table_engine() as connection:
        connection.register("bucket_rows", rows)
        connection.execute("SET VARIABLE tenant = ?", [tenant])
        connection.execute(relation_sql("bucket_rows"))
        views = {}
        for name in names:
            chosen = ", ".join(f'"{column}"' for column in columns.get(name, ())) or "*"
            condition = where.get(name, "true")
            query = f"SELECT {chosen} FROM (\n{view_sql(name)}\n) WHERE {condition}"
            if few:
                views[name] = _copied(connection, query)
            else:
                views[name] = connection.sql(query).to_arrow_table()
        if not few:
            # To set its limit anew makes the engine give back what it keeps for further
            # statements: four times what the views hold. It takes 5 ms.
            connection.execute("RESET GLOBAL memory_limit")
    return views


def _copied(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Its rows by way of a table: planned once and not twice, and no other thread waits for the
    plan. Of few rows that takes longer than a copy."""
    connection.execute(f"CREATE TEMP TABLE answer AS {query}")
    rows = connection.table("answer").to_arrow_table()
    connection.execute("DROP TABLE answer")
    return rows


@contextmanager
def table_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """For statements over tables in memory alone, in UTC. What is made in it goes with it."""
    with _process_engine(os.getpid()).cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@cache
def _process_engine(_pid: int) -> duckdb.DuckDBPyConnection:
    """Opening one costs more than a statement over a bucket does: a process opens it once."""
    configuration: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "enable_external_access": False,
    }
    return duckdb.connect(":memory:", config=configuration)
