"""Runs migrations on the connection that `penstock.database.migrations` hands over, or, when
Alembic is called by hand, on the database that the settings name."""

from collections.abc import Collection
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.database.migrations import exclusive_transaction, note_supported
from penstock.database.tables import all_tables
from penstock.settings import load_settings


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=all_tables(),
        render_as_batch=True,
        on_version_apply=lambda ctx, step, heads, run_args: _note(ctx, heads),
    )
    with context.begin_transaction():
        context.run_migrations()


def _note(ctx: MigrationContext, heads: Collection[Any]) -> None:
    assert ctx.connection is not None
    note_supported(ctx.connection, next(iter(heads), None))


if (given := context.config.attributes.get("connection")) is not None:
    _migrate(given)
else:
    with exclusive_transaction(Database.of(load_settings())) as connection:
        _migrate(connection)
