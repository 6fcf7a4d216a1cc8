"""Add the replicas of serving fleets, and what each has loaded."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "replica",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("replica", sa.String(length=128), nullable=False),
        sa.Column("part", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("wanted", sa.String(length=128), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("loaded", sa.String(length=128), nullable=True),
        sa.Column("digest", sa.String(length=80), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("sidecar", sa.String(length=32), nullable=False),
        sa.Column("loaded_at", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "channel", "replica", name=op.f("pk_replica")),
    )


def downgrade() -> None:
    op.drop_table("replica")
