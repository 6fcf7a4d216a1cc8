"""Keys that files of the lake are sealed with."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "data_key",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("retired_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_data_key"),
    )
    op.create_index("ix_data_key_owner", "data_key", ["owner", "retired_at"])


def downgrade() -> None:
    op.drop_index("ix_data_key_owner", "data_key")
    op.drop_table("data_key")
