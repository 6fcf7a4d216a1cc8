"""Erasures: which there are, whom they reach, their tombstones; what was erased in the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "erasure",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.String(length=128), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasure")),
    )
    op.create_index("ix_erasure_state", "erasure", ["state"])
    op.create_table(
        "erasure_session",
        sa.Column("erasure", sa.String(length=32), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.PrimaryKeyConstraint("erasure", "tenant", "session_id", name=op.f("pk_erasure_session")),
    )
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "tombstone",
        sa.Column("id", number, nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=True),
        sa.Column("erasure", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstone")),
        sa.UniqueConstraint(
            "tenant", "kind", "digest", "erasure", name=op.f("uq_tombstone_tenant")
        ),
    )
    op.add_column("ledger", sa.Column("erased", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("ledger", "erased")
    op.drop_table("tombstone")
    op.drop_table("erasure_session")
    op.drop_table("erasure")
