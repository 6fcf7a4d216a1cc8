"""Rewards know up to which decision on consent they were computed."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column(
        "reward_definition",
        sa.Column("through_decision", sa.BigInteger(), nullable=False, server_default="0"),
    )


def downgrade() -> None:
    op.drop_column("reward_definition", "through_decision")
