"""Add what people and language models said of follow-ups."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "follow_up_label",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
        ),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=32), nullable=True),
        sa.Column("drawn", sa.Boolean(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.String(length=128), nullable=False),
        sa.Column("is_model", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_follow_up_label")),
    )
    op.create_index(
        "ix_follow_up_label_session", "follow_up_label", ["tenant", "session_id"], unique=False
    )


def downgrade() -> None:
    op.drop_table("follow_up_label")
