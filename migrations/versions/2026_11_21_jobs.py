"""Add jobs over buckets of sessions, and what they found."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=64), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("buckets", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index("ix_job_family", "job", ["family"], unique=False)
    op.create_table(
        "job_result",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", "bucket", name=op.f("pk_job_result")),
    )


def downgrade() -> None:
    op.drop_table("job_result")
    op.drop_index("ix_job_family", table_name="job")
    op.drop_table("job")
