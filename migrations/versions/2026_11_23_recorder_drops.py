"""The ledger counts events that recorders dropped before they were sent."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("dropped", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("ledger", "dropped")
