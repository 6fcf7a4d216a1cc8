"""Files hold one tenant, and a tenant may be stored further than its partition of the log."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "tenant_offset",
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("partition", "tenant", name=op.f("pk_tenant_offset")),
    )
    op.create_index("ix_tenant_offset_next", "tenant_offset", ["partition", "next_offset"])
    op.add_column("segment", sa.Column("tenant", sa.String(128), nullable=True))
    op.create_index("ix_segment_tenant", "segment", ["tenant", "removed_snap"])
    op.add_column("reward_file", sa.Column("tenant", sa.String(128), nullable=True))
    op.create_index("ix_reward_file_tenant", "reward_file", ["tenant", "removed_snap"])


def downgrade() -> None:
    op.drop_index("ix_reward_file_tenant", "reward_file")
    op.drop_column("reward_file", "tenant")
    op.drop_index("ix_segment_tenant", "segment")
    op.drop_column("segment", "tenant")
    op.drop_table("tenant_offset")
