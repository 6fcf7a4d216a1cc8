"""Add rewards: definitions, their files, what is due; and how sessions go on with others."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("segment", sa.Column("changed_snap", sa.BigInteger(), nullable=True))
    op.create_table(
        "reward_definition",
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("through_snap", sa.BigInteger(), nullable=False),
        sa.Column("run_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_reward_definition")),
    )
    op.create_table(
        "reward_file",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("definition_version", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("sessions", sa.BigInteger(), nullable=False),
        sa.Column("sessions_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sessions_sha256", sa.String(length=64), nullable=False),
        sa.Column("lake_snap", sa.BigInteger(), nullable=False),
        sa.Column("added_snap", sa.BigInteger(), nullable=False),
        sa.Column("removed_snap", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reward_file")),
        sa.UniqueConstraint("name", name=op.f("uq_reward_file_name")),
    )
    op.create_index(
        "ix_reward_file_live", "reward_file", ["definition_version", "removed_snap"], unique=False
    )
    op.create_table(
        "reward_due",
        sa.Column("definition_version", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("computed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "definition_version", "tenant", "session_id", name=op.f("pk_reward_due")
        ),
    )
    op.create_index(
        "ix_reward_due_at", "reward_due", ["definition_version", "due_at"], unique=False
    )
    op.create_table(
        "session_link",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.Column("parent_session", sa.String(length=512), nullable=False),
        sa.Column("link", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session_id", name=op.f("pk_session_link")),
    )
    op.create_index(
        "ix_session_link_parent", "session_link", ["tenant", "parent_session"], unique=False
    )


def downgrade() -> None:
    for name in ("session_link", "reward_due", "reward_file", "reward_definition"):
        op.drop_table(name)
    op.drop_column("segment", "changed_snap")
