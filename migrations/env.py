"""Runs migrations on the connection that `penstock.database.upgrade` hands over, or, when
Alembic is called by hand, on the database that the settings name."""

from alembic import context
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.database.tables import metadata
from penstock.settings import load_settings


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    _migrate(given)
else:
    settings = load_settings()
    database = Database(settings.database_url, lock_seconds_max=settings.database_lock_seconds_max)
    with database.write() as connection:
        _migrate(connection)
