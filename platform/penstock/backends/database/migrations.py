"""Making the tables of a database, and checking that they suit this code."""

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
    """Read the database's revision. Raises DatabaseOutdated."""
    with database.read() as connection:
        found = _revision(connection)
    if found != REVISION:
        raise DatabaseOutdated(found=found or "none", needed=REVISION)
    return found


def run_schema(connection: Connection) -> None:
    """Make the tables by a script: importing Alembic and all rooms takes a second."""
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
    """Open a transaction for changing tables, one at a time. It waits for locks no longer than
    others do, since users of a table wait behind it."""
    with database.write() as connection:
        if not database.is_sqlite:
            lock_timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
            for name in ("statement_timeout", "lock_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {name} = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{lock_timeout}'")
        yield connection


def migrations_folder() -> Path:
    """Find the migrations: at the top of a checkout, or beside the code in an installed wheel."""
    checkout = Path(__file__).parents[4] / "migrations"
    shipped = Path(__file__).parents[2] / "_migrations"
    return checkout if (checkout / "env.py").exists() else shipped


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalars(sa.select(_VERSION.c.version_num)).one_or_none()
