"""How old the oldest event of a commit was."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.add_column("lake_commit", sa.Column("waited_us", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("lake_commit", "waited_us")
