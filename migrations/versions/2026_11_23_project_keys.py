"""Keys for one project."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("project", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("api_key", "project")
