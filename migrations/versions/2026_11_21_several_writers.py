"""Add what several writers need: leases by name, who is there, and the log's shape; and what
lets them be upgraded one by one."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    op.create_table(
        "writer",
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_writer")),
    )
    op.create_table(
        "log_shape",
        sa.Column("log_id", sa.String(length=64), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", name=op.f("pk_log_shape")),
    )
    op.create_table(
        "supported_revision",
        sa.Column("revision", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_supported_revision")),
    )
    op.add_column("segment", sa.Column("log_partitions", sa.Integer(), nullable=True))
    op.add_column("log_gap", sa.Column("accepted_at", sa.BigInteger(), nullable=True))
    op.add_column("log_gap", sa.Column("accepted_why", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("log_gap", "accepted_why")
    op.drop_column("log_gap", "accepted_at")
    op.drop_column("segment", "log_partitions")
    op.drop_table("supported_revision")
    op.drop_table("log_shape")
    op.drop_table("writer")
    op.drop_table("lease")
