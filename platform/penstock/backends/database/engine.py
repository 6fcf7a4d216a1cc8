"""Connections, transactions and statements, on SQLite and PostgreSQL alike."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine, Table
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles

from penstock.backends.database import (
    DatabaseLimits,
    DatabaseSettings,
    DatabaseUnreachable,
    postgresql,
    sqlite,
)
from penstock.core.errors import InvalidInput
from penstock.core.lake_keys import HeadKeys
from penstock.core.settings import Settings, without_secrets

_POSTGRESQL = ("postgres", "postgresql", "postgresql+psycopg")
_DEFAULT_LIMITS = DatabaseLimits()
_VALUES_MAX = 500
T = TypeVar("T")


class _Backend(Protocol):
    ONE_STATE: Mapping[str, Any]
    READ_ONLY: Mapping[str, Any]

    def make_engine(self, url: sa.URL, limits: DatabaseLimits, /) -> Engine: ...
    def why_unusable(self, error: DBAPIError, limits: DatabaseLimits, /) -> str | None: ...
    def scrub(self, connection: Connection, /) -> None: ...


class Database:
    """The metadata database. Safe to share between threads."""

    def __init__(
        self, url: str, limits: DatabaseLimits = _DEFAULT_LIMITS, head_keys: HeadKeys | None = None
    ) -> None:
        """Raises InvalidInput, ExtraMissing. Connects at first use."""
        self.url = parse_database_address(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._limits = limits
        self._backend: _Backend = sqlite if self.is_sqlite else postgresql
        engine = self._backend.make_engine(self.url, limits)
        self.engine = engine.execution_options(head_keys=head_keys)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        room = settings.room(DatabaseSettings)
        limits = DatabaseLimits(
            statement_seconds_max=room.database_statement_seconds_max,
            connections_max=room.database_connections_max,
        )
        return cls(settings.database_url, limits, HeadKeys.of(settings))

    @property
    def signs(self) -> bool:
        """Whether its chains are signed, and checked by their signatures."""
        return self.engine.get_execution_options()["head_keys"] is not None

    @contextmanager
    def write(self, *, one_state: bool = False) -> Iterator[Connection]:
        """Open a transaction. Each statement sees what others have committed by then. With
        `one_state` all see what the first one saw. Raises DatabaseUnreachable."""
        options = self._backend.ONE_STATE if one_state else {}
        with self._connect(options) as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one state and changes nothing. Raises
        DatabaseUnreachable."""
        read_only = self._backend.READ_ONLY
        with self._connect(read_only) as connection, connection.begin() as transaction:
            yield connection
            transaction.rollback()

    def rows(self, query: sa.Executable) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Read the rows of one query. Raises DatabaseUnreachable."""
        with self.read() as connection:
            return connection.execute(query).all()

    def scalars(self, query: sa.Executable) -> Sequence[Any]:
        """Read the first column of a query. Raises DatabaseUnreachable."""
        with self.read() as connection:
            return connection.scalars(query).all()

    def scalar(self, query: sa.Executable) -> Any:
        """Read the first value of a query, None without rows. Raises DatabaseUnreachable."""
        with self.read() as connection:
            return connection.scalar(query)

    def scrub(self) -> None:
        """Remove deleted rows from the files too; PostgreSQL only frees their room. Raises
        DatabaseUnreachable."""
        with self._connect({"isolation_level": "AUTOCOMMIT"}) as connection:
            self._backend.scrub(connection)

    def damage(self) -> list[str]:
        """Ask the database for damage in itself. PostgreSQL checks pages as it reads them."""
        if not self.is_sqlite:
            return []
        with self.read() as connection:
            said = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
        return [text for text in said if text != "ok"]

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _connect(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection.execution_options(**options)
        except (sa.exc.TimeoutError, DBAPIError) as error:
            if isinstance(error, DBAPIError):
                why = self._backend.why_unusable(error, self._limits)
            else:
                why = "all its connections are in use"
            if why is None:
                raise
            address = self.url.set(query={}).render_as_string(hide_password=True)
            raise DatabaseUnreachable(why=f"{why} ({address})") from error


def parse_database_address(url: str) -> sa.URL:
    """Parse an address of SQLite or PostgreSQL. Raises InvalidInput."""
    what = f"The database address {without_secrets(url)}"
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidInput(what=what, why="it is not an address") from error
    if parsed.drivername in _POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise InvalidInput(what=what, why="it begins with neither sqlite: nor postgresql:")
    return parsed


def lock_table(connection: Connection, table: Table, *, alone: bool) -> None:
    """Lock a table until the transaction ends: shared, or `alone`. Call it first, so that
    `one_state` shows what earlier transactions left."""
    if connection.dialect.name == "postgresql":
        # Both modes let others read the table, and insert into every other table.
        mode = "SHARE ROW EXCLUSIVE" if alone else "ROW EXCLUSIVE"
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN {mode} MODE")


def insert_of(connection: Connection) -> Any:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql as dialect
    else:
        from sqlalchemy.dialects import sqlite as dialect  # type: ignore[no-redef]
    return dialect.insert


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is there. Returns whether it is new."""
    insert = insert_of(connection)(table).values(**row).on_conflict_do_nothing()
    # The row count would not say: on PostgreSQL it is -1.
    return connection.execute(insert.returning(*table.primary_key)).first() is not None


def put_rows(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    added: Collection[str] = (),
) -> None:
    """Insert rows, or change those with the same primary key; columns `added` are added up."""
    if not rows:
        return
    insert, keys = insert_of(connection)(table), table.primary_key.columns
    changed = {
        name: table.c[name] + insert.excluded[name] if name in added else insert.excluded[name]
        for name in rows[0]
        if name not in keys
    }
    put = insert.on_conflict_do_update(index_elements=keys, set_=changed)
    connection.execute(put, [dict(row) for row in rows])


def portions(values: Iterable[T]) -> Iterator[list[T]]:
    """Divide values into lists that one statement may name."""
    rest = iter(values)
    while portion := list(islice(rest, _VALUES_MAX)):
        yield portion


def now_us(seconds_from_now: float = 0) -> ColumnElement[int]:
    """Make an expression of the database's clock. Leases are compared with no other."""
    clock = _DatabaseClock()
    return clock + round(seconds_from_now * 1_000_000) if seconds_from_now else clock


def clock_us(connection: Connection, seconds_from_now: float = 0) -> int:
    """Read the database's clock."""
    return int(connection.execute(sa.select(now_us(seconds_from_now))).scalar_one())


class _DatabaseClock(sa.sql.functions.FunctionElement[int]):
    type = sa.BigInteger()
    inherit_cache = True


@compiles(_DatabaseClock, "sqlite")
def _sqlite_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return f"{sqlite.CLOCK}()"


@compiles(_DatabaseClock, "postgresql")
def _postgresql_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
