"""The tables of a database: making them, and whether they suit this code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database import DatabaseOutdated
from penstock.backends.database.engine import Database

#: The newest migration.
REVISION = "0001"
_LOCK = 0x70656E73746F636B  # a number that no other program's advisory lock has
#: Where Alembic keeps the revision.
_VERSION = sa.table("alembic_version", sa.column("version_num", sa.String))


def upgrade(database: Database) -> None:
    """Make the tables of an empty database; several processes may try at once. Raises
    DatabaseOutdated, and DatabaseUnreachable where a lock is held."""
    with database.read() as connection:
        found = _revision(connection)
    if found is None:
        with exclusive_transaction(database) as connection:
            if _revision(connection) is None:
                make = run_schema if database.is_sqlite else migrate
                make(connection)
    check(database)


def check(database: Database) -> str:
    """The database's revision. Raises DatabaseOutdated."""
    with database.read() as connection:
        found = _revision(connection)
    if found != REVISION:
        raise DatabaseOutdated(found=found or "none", needed=REVISION)
    return found


def run_schema(connection: Connection) -> None:
    """By the script: importing Alembic and all rooms takes a second."""
    script = (migrations_folder() / "schema.sql").read_text(encoding="utf-8")
    for statement in script.split(";\n"):
        connection.exec_driver_sql(statement)


def migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()))
    command.upgrade(config, "head")


@contextmanager
def exclusive_transaction(database: Database) -> Iterator[Connection]:
    """A transaction for changing tables, one at a time. It waits for locks no longer than others
    do: who uses the table waits behind it."""
    with database.write() as connection:
        if not database.is_sqlite:
            lock_timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
            for name in ("statement_timeout", "lock_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {name} = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{lock_timeout}'")
        yield connection


def migrations_folder() -> Path:
    """Beside the code in an installed wheel, at the top of a checkout otherwise."""
    checkout = Path(__file__).parents[4] / "migrations"
    shipped = Path(__file__).parents[2] / "_migrations"
    return checkout if (checkout / "env.py").exists() else shipped


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalars(sa.select(_VERSION.c.version_num)).one_or_none()
