"""Examples of the sessions that shards do not hold."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.create_table(
        "shard_left_out",
        sa.Column("shard", sa.String(80), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("session_id", sa.String(512), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint(
            "shard", "tenant", "session_id", "reason", name=op.f("pk_shard_left_out")
        ),
    )


def downgrade() -> None:
    op.drop_table("shard_left_out")
