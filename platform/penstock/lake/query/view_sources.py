"""The views that queries read, of the lake and of rooms above it.

The SQL of a view is `views/NAME.sql` in its room's package. A function of the room binds the tables
and files of its views, and is imported with their first query.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.core.room import Room, rooms
from penstock.lake.query.pinned_files import PinnedFiles
from penstock.lake.query.statements import Preparation

_LAKE = "penstock.lake.query"
_SUFFIX = ".sql"
#: Views over the events and sessions of the lake.
LAKE_VIEWS = frozenset(
    entry.name.removesuffix(_SUFFIX)
    for entry in files(_LAKE).joinpath("views").iterdir()
    if entry.name.endswith(_SUFFIX)
)
_TIME = pa.timestamp("us", tz="UTC")
#: Below this size, rows take longer to plan than to copy.
_FEW_BYTES = 1 << 20
#: The lines below `-- Columns:` in the SQL of a view.
_COLUMNS = re.compile(r"^--   (\S+(?:, \S+)*)  +(\S.*)$", re.MULTILINE)


def view_names() -> frozenset[str]:
    return LAKE_VIEWS | _room_views().keys()


@cache
def _room_views() -> Mapping[str, Room]:
    return {name: room for room in rooms() for name in room.views}


@cache
def view_sql(name: str) -> str:
    room = _room_views().get(name)
    package = room.package if room else _LAKE
    return files(package).joinpath("views", name + _SUFFIX).read_text(encoding="utf-8")


def column_meanings(view: str) -> list[tuple[list[str], str]]:
    """Read the meanings of a view's columns. Columns on one line of its SQL share one."""
    header = view_sql(view).partition("-- Columns:\n")[2]
    return [(names.split(", "), meaning) for names, meaning in _COLUMNS.findall(header)]


def relation_sql(name: str) -> str:
    return files(_LAKE).joinpath("base", name + _SUFFIX).read_text(encoding="utf-8")


@dataclass
class ViewSources:
    """Binds the tables and files of views to the connection of one query."""

    connection: Preparation
    files: PinnedFiles
    database: Database
    tenant: str
    snap: int
    #: The time that the snap stands for; None is now.
    moment: int | None
    _views: set[str] = field(default_factory=set)

    def bind_query(self, name: str, query: sa.Select[Any]) -> None:
        types = {column.name: _arrow_type(column) for column in query.selected_columns}
        rows = self.database.rows(query)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        arrays = [
            pa.array(values, pa.int64()).cast(_TIME) if kind == _TIME else pa.array(values, kind)
            for values, kind in zip(columns, types.values(), strict=True)
        ]
        self.connection.register(name, pa.Table.from_arrays(arrays, schema=pa.schema(types)))

    def bind_files(
        self, name: str, file_names: Sequence[str], schema: pa.Schema, *, with_paths: bool = False
    ) -> list[str]:
        """Make a relation of the rows of Parquet files; without files it has the columns of
        `schema`. `with_paths` adds the column `filename`, one of the returned paths."""
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
        """Make the variable `NAME_files` for a statement of our own."""
        paths = self.files.paths(file_names)
        self.connection.paths += paths
        self.connection.execute(f"SET VARIABLE {name}_files = ?", [paths])
        return paths

    def known(self, at: sa.Column[int]) -> sa.ColumnElement[bool]:
        """Make a condition on rows that are not later than the query's moment."""
        return sa.true() if self.moment is None else at <= self.moment

    def create_view(self, name: str, sql: str | None = None) -> None:
        """Create a view from its file or this SQL, unless it is there."""
        if name not in self._views:
            self._views.add(name)
            self.connection.execute(f'CREATE VIEW "{name}" AS {sql or view_sql(name)}')


#: Binds the tables and files of these views of a room.
BindViews = Callable[[ViewSources, frozenset[str]], None]


def bind_room_views(sources: ViewSources, views: frozenset[str]) -> None:
    for room in rooms():
        if room.bind_views and (names := views.intersection(room.views)):
            bind: BindViews = room.bind_views()
            bind(sources, names)


def _arrow_type(column: sa.ColumnElement[Any]) -> pa.DataType:
    """Find the type in Arrow. Times are microseconds, in columns named `at` or `…_at`."""
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
    """Compute views of the lake, but `sessions`, over whole sessions of one tenant. `columns` and
    `where`, by view, save the work for what they leave out."""
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
            # Setting it anew makes the engine free what it keeps: four times the views.
            connection.execute("RESET GLOBAL memory_limit")
    return views


def _copied(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Copy rows through a table, so that the query is planned once: for few rows planning takes
    longer."""
    connection.execute(f"CREATE TEMP TABLE answer AS {query}")
    rows = connection.table("answer").to_arrow_table()
    connection.execute("DROP TABLE answer")
    return rows


@contextmanager
def table_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with _process_engine(os.getpid()).cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@cache
def _process_engine(_pid: int) -> duckdb.DuckDBPyConnection:
    """Open the engine of a process: opening costs more than a statement over a bucket."""
    configuration: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "enable_external_access": False,
    }
    return duckdb.connect(":memory:", config=configuration)
