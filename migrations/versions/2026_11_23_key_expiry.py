"""Keys may expire."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("expires_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("api_key", "expires_at")
