"""Migrations: which revision the database has, and moving it to the newest.

A migration only adds, so that code of the revision before keeps working beside it, and a new
version may be rolled out process by process. `supported_revision` lists the revisions whose
code suits the database. A migration after which older code would fail sets
`breaks_older_code = True`.

Alembic is loaded only where the database is not at the newest revision: that takes as long as
many a command."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.database.errors import DatabaseOutdated
from penstock.database.tables import supported_revision

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

_LOCK = 0x70656E73746F636B  # a number that no other program's advisory lock has
#: Where Alembic keeps the revision.
_VERSION = sa.table("alembic_version", sa.column("version_num", sa.String))
_NAMED = re.compile(r'^(down_)?revision(?:: [^=]+)? = "(\w+)"', re.MULTILINE)


def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the database to `revision`; several processes may try at once. Changes nothing
    where a newer Penstock upgraded it and it still suits this one. Raises DatabaseOutdated, and
    DatabaseUnreachable, with nothing changed, where others use the tables for too long."""
    if revision == "head" and _is_newest(database):
        return
    from alembic import command

    with exclusive_transaction(database) as connection:
        current = _current(connection)
        if current in _known():
            command.upgrade(_config(connection), revision)
        elif newest_revision() not in _supported(connection):
            raise DatabaseOutdated(found=current, needed=newest_revision())


def downgrade(database: Database, revision: str) -> None:
    from alembic import command

    with exclusive_transaction(database) as connection:
        current = _current(connection)
        if current not in _known():
            raise DatabaseOutdated(found=current, needed=newest_revision())
        command.downgrade(_config(connection), revision)


def check(database: Database) -> str:
    """The database's revision, if it suits this code. Raises DatabaseOutdated."""
    if newest := _is_newest(database):
        return newest
    with database.read() as connection:
        current, needed = _current(connection), newest_revision()
        newer = current not in _known() and needed in _supported(connection)
    if current != needed and not newer:
        raise DatabaseOutdated(found=current or "none", needed=needed)
    return str(current)


def _is_newest(database: Database) -> str | None:
    """The revision of the database, if it is the newest."""
    with database.read() as connection:
        if not sa.inspect(connection).has_table(_VERSION.name):
            return None
        current = connection.scalars(sa.select(_VERSION.c.version_num)).all()
    return str(current[0]) if current == [revision_by_files(_migrations())] else None


def revision_by_files(migrations: Path) -> str | None:
    """The newest revision, as its file says; None where the files do not say it so plainly."""
    texts = [path.read_text(encoding="utf-8") for path in migrations.glob("versions/*.py")]
    named = [match.groups() for text in texts for match in _NAMED.finditer(text)]
    heads = {name for down, name in named if not down} - {name for down, name in named if down}
    return heads.pop() if len(heads) == 1 else None


def newest_revision() -> str:
    return _scripts().get_current_head() or "none"


@contextmanager
def exclusive_transaction(database: Database) -> Iterator[Connection]:
    """A transaction for changing tables, one at a time. It may take long, but waits for locks no
    longer than others do: everybody who uses the table waits behind it."""
    with database.write() as connection:
        if not database.is_sqlite:
            lock_timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
            for name in ("statement_timeout", "lock_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {name} = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{lock_timeout}'")
        yield connection


def note_supported(connection: Connection, revision: str | None) -> None:
    """Write down whose code suits the database at `revision`. Called with every migration."""
    if not sa.inspect(connection).has_table(supported_revision.name):
        return
    connection.execute(sa.delete(supported_revision))
    # Back to the last migration that broke older code.
    for script in _scripts().iterate_revisions(revision, "base") if revision else ():
        connection.execute(sa.insert(supported_revision).values(revision=script.revision))
        if getattr(script.module, "breaks_older_code", False):
            return


def _supported(connection: Connection) -> set[str]:
    exists = sa.inspect(connection).has_table(supported_revision.name)
    return set(connection.scalars(sa.select(supported_revision.c.revision))) if exists else set()


def _current(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _known() -> set[str | None]:
    """The revisions that this code can upgrade; None is an empty database."""
    return {None, *(script.revision for script in _scripts().walk_revisions())}


def _scripts() -> "ScriptDirectory":
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config())


def _config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_migrations()))
    return config


def _migrations() -> Path:
    """Beside the code in an installed wheel, at the top of a checkout otherwise."""
    checkout = Path(__file__).parents[3] / "migrations"
    shipped = Path(__file__).parents[1] / "_migrations"
    return checkout if (checkout / "env.py").exists() else shipped
