"""Remember where reading of a large log of sessions stopped."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("imported_source", sa.Column("reading", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("imported_source", "reading")
