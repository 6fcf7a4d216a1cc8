"""Add training shards, and the marks of those that hold what they should hold no more."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "shard",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("snapshot", sa.String(length=128), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("trainable", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("session_filter", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("added_snap", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shard")),
    )
    op.create_index("ix_shard_name", "shard", ["tenant", "name"], unique=False)
    op.create_table(
        "shard_file",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("shard", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_shard_file")),
    )
    op.create_index("ix_shard_file_shard", "shard_file", ["shard"], unique=False)
    op.create_table(
        "shard_mark",
        sa.Column("shard", sa.String(length=80), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("marked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "shard", "tenant", "session_id", "reason", name=op.f("pk_shard_mark")
        ),
    )


def downgrade() -> None:
    op.drop_table("shard_mark")
    op.drop_index("ix_shard_file_shard", table_name="shard_file")
    op.drop_table("shard_file")
    op.drop_index("ix_shard_name", table_name="shard")
    op.drop_table("shard")
