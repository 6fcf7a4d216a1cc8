"""The ledger counts events with keys that are nearly known."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("near_misses", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("ledger", "near_misses")
