"""Add what a judge of follow-ups answered, and what its runs have spent."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "judge_answer",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_judge_answer")),
    )
    op.create_table(
        "judge_spending",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", name=op.f("pk_judge_spending")),
    )


def downgrade() -> None:
    op.drop_table("judge_spending")
    op.drop_table("judge_answer")
