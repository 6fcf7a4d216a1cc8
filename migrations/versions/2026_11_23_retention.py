"""Shards that were dropped, and how long what is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("shard", sa.Column("gone", sa.String(length=16), nullable=True))
    op.add_column("shard", sa.Column("gone_at", sa.BigInteger(), nullable=True))
    op.add_column("shard", sa.Column("gone_why", sa.Text(), nullable=True))
    op.execute(
        "update shard set gone = 'erased', gone_why = '', gone_at = created_at"
        " where bytes = 0 and id in (select shard from shard_mark where reason = 'erased')"
    )
    op.create_table(
        "retention_rule",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("age_s", sa.BigInteger(), nullable=True),
        sa.Column("breaks_snapshots", sa.Boolean(), nullable=False),
        sa.Column("set_by", sa.String(length=128), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "kind", name=op.f("pk_retention_rule")),
    )
    op.create_table(
        "retention_run",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "kind", name=op.f("pk_retention_run")),
    )


def downgrade() -> None:
    op.drop_table("retention_run")
    op.drop_table("retention_rule")
    op.drop_column("shard", "gone_why")
    op.drop_column("shard", "gone_at")
    op.drop_column("shard", "gone")
