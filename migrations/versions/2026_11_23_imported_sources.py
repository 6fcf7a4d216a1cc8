"""Remember which sources of sessions were imported."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "imported_source",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=128), nullable=False),
        sa.Column("mark", sa.String(length=32), nullable=False),
        sa.Column("imported_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", name=op.f("pk_imported_source")),
    )


def downgrade() -> None:
    op.drop_table("imported_source")
