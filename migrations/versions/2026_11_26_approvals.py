"""People approve of checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.create_table(
        "approval",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("checkpoint", sa.String(128), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "channel", "checkpoint", "actor", name=op.f("pk_approval")
        ),
    )


def downgrade() -> None:
    op.drop_table("approval")
