"""What failed attempts wrote lies beside the journal, which holds its digest."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.create_table(
        "attempt_output",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", name=op.f("pk_attempt_output")),
    )


def downgrade() -> None:
    op.drop_table("attempt_output")
