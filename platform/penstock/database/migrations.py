"""Migrations: which revision the database has, and moving it to the newest.

A step only adds, so that code of the revision before keeps working beside it; then it may be
rolled out process by process. `supported_revision` lists the revisions whose code the database
suits. A step after which older code would fail says so: `breaks_older_code = True`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.database.errors import DatabaseOutdated
from penstock.database.tables import supported_revision

_LOCK = 0x70656E73746F636B  # any number that nobody else's advisory lock has


def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the database to `revision`; several processes may try at once. Changes nothing
    where a newer Penstock was here and the database suits this one still. Raises
    DatabaseOutdated where it does not, and DatabaseUnreachable where others use the tables so
    much that a change has to wait too long: nothing is changed then."""
    with exclusive_transaction(database) as connection:
        found = _current(connection)
        if found in _known():
            command.upgrade(_config_for(connection), revision)
        elif newest_revision() not in _supported(connection):
            raise DatabaseOutdated(found=found, needed=newest_revision())


def downgrade(database: Database, revision: str) -> None:
    with exclusive_transaction(database) as connection:
        found = _current(connection)
        if found not in _known():
            raise DatabaseOutdated(found=found, needed=newest_revision())
        command.downgrade(_config_for(connection), revision)


def check(database: Database) -> str:
    """The database's revision: that of this code, or a newer one that suits it. Raises
    DatabaseOutdated."""
    with database.read() as connection:
        found, needed = _current(connection), newest_revision()
        newer = found not in _known() and needed in _supported(connection)
    if found != needed and not newer:
        raise DatabaseOutdated(found=found or "none", needed=needed)
    return str(found)


def revision_of(database: Database) -> str | None:
    with database.read() as connection:
        return _current(connection)


def newest_revision() -> str:
    return _scripts().get_current_head() or "none"


@contextmanager
def exclusive_transaction(database: Database) -> Iterator[Connection]:
    """A transaction for changing tables; others that want the same wait until it has ended.
    A change takes the time that it needs, but does not wait for others' locks for longer than
    any transaction: who uses the table waits behind it."""
    with database.write() as connection:
        if not database.is_sqlite:
            lock_timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
            for name in ("statement_timeout", "lock_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {name} = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{lock_timeout}'")
        yield connection


def note_supported(connection: Connection, revision: str | None) -> None:
    """Write down whose code the database suits at `revision`. Called with every step."""
    if not _has_supported(connection):
        return
    connection.execute(sa.delete(supported_revision))
    if suited := _suited_by(revision):
        connection.execute(sa.insert(supported_revision), [{"revision": one} for one in suited])


def _suited_by(revision: str | None) -> list[str]:
    """The revisions back to the last step that broke older code."""
    suited = []
    for script in _scripts().iterate_revisions(revision, "base") if revision else ():
        suited.append(script.revision)
        if getattr(script.module, "breaks_older_code", False):
            break
    return suited


def _supported(connection: Connection) -> set[str]:
    if not _has_supported(connection):
        return set()
    return set(connection.scalars(sa.select(supported_revision.c.revision)))


def _has_supported(connection: Connection) -> bool:
    return sa.inspect(connection).has_table(supported_revision.name)


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _known() -> set[str | None]:
    """What this code can go on from; None is an empty database."""
    return {None, *(script.revision for script in _scripts().walk_revisions())}


def _config_for(connection: Connection) -> Config:
    config = _config()
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    return config


def _migrations() -> Path:
    """Beside the code in an installed wheel, at the top of a checkout otherwise."""
    checkout = Path(__file__).parents[3] / "migrations"
    shipped = Path(__file__).parents[1] / "_migrations"
    return checkout if (checkout / "env.py").exists() else shipped
