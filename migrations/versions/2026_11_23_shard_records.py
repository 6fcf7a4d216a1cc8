"""What proofs say of a shard is kept when its files go."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "shard_record",
        sa.Column("shard", sa.String(80), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shard", name=op.f("pk_shard_record")),
    )


def downgrade() -> None:
    op.drop_table("shard_record")
