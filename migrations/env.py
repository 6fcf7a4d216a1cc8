"""Runs migrations on the connection that `penstock.backends.database.migrations` hands over."""

from alembic import context

from penstock.backends.database.tables import all_tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=all_tables(),
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
