"""Decisions on consent, by user, project and session."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "consent_decision",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.String(length=512), nullable=False),
        sa.Column("consent", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.String(length=128), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consent_decision")),
    )
    op.create_index(
        "ix_consent_decision_subject", "consent_decision", ["tenant", "kind", "subject"]
    )


def downgrade() -> None:
    op.drop_table("consent_decision")
