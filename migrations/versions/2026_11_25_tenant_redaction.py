"""Tenants may have modes of redaction of their own, and matches of rules are counted."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "tenant_redaction",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("secrets", sa.String(16), nullable=True),
        sa.Column("personal", sa.String(16), nullable=True),
        sa.Column("set_by", sa.String(128), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_tenant_redaction")),
    )
    op.create_table(
        "redaction_count",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("source", sa.String(512), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("rule", sa.String(64), nullable=False),
        sa.Column("matches", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "source", "hour", "rule", name=op.f("pk_redaction_count")
        ),
    )


def downgrade() -> None:
    op.drop_table("redaction_count")
    op.drop_table("tenant_redaction")
