"""Migrations: which revision the database has, and moving it to the newest."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.errors import DatabaseOutdated


def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the database to `revision`; several processes may try at once. Raises
    DatabaseOutdated when a newer Penstock was here: its tables are not known."""
    with database.write() as connection:
        command.upgrade(_config_for(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    with database.write() as connection:
        command.downgrade(_config_for(connection), revision)


def check(database: Database) -> str:
    """The revision, when it is the one that this code needs. Raises DatabaseOutdated."""
    found, needed = revision_of(database), newest_revision()
    if found != needed:
        raise DatabaseOutdated(found=found or "none", needed=needed)
    return needed


def revision_of(database: Database) -> str | None:
    with database.read() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str:
    return _scripts().get_current_head() or "none"


def _config_for(connection: Connection) -> Config:
    found = MigrationContext.configure(connection).get_current_revision()
    if found and found not in {script.revision for script in _scripts().walk_revisions()}:
        raise DatabaseOutdated(found=found, needed=newest_revision())
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
