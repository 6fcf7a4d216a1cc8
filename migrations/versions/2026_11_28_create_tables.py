"""Create all tables.

Until the first release this one step follows the tables: `migrations/schema.sql` is the same for
SQLite, and `make schema` writes it."""

from alembic import op

from penstock.backends.database.migrations import REVISION
from penstock.backends.database.tables import all_tables

revision = REVISION
down_revision = None


def upgrade() -> None:
    all_tables().create_all(op.get_bind(), checkfirst=False)
