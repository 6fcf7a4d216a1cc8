"""Writers know in which sessions something was masked."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "masked_session",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("session_id", sa.String(512), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session_id", name=op.f("pk_masked_session")),
    )


def downgrade() -> None:
    op.drop_table("masked_session")
