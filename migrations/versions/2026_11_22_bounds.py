"""Rejected lines lie in files; rows say where, and count those that are alike. Add fuses, quotas
and the bytes of the ledger."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "kind": sa.String(length=128),
    "lines": sa.BigInteger(),
    "acknowledged": sa.Boolean(),
    "file": sa.String(length=255),
    "start": sa.BigInteger(),
    "length": sa.Integer(),
}
_INDEXES = {"ix_rejected_tenant": ["tenant", "source"], "ix_rejected_file": ["file"]}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("rejected", sa.Column(name, kind, nullable=True))
    for name, columns in _INDEXES.items():
        op.create_index(op.f(name), "rejected", columns)
    op.create_table(
        "rejection_fuse",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("source", sa.String(length=512), nullable=False),
        sa.Column("tripped_at", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "source", name=op.f("pk_rejection_fuse")),
    )
    op.create_table(
        "tenant_quota",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("maximum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_tenant_quota")),
    )
    op.add_column("ledger", sa.Column("bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("ledger", "bytes")
    op.drop_table("tenant_quota")
    op.drop_table("rejection_fuse")
    for name in _INDEXES:
        op.drop_index(op.f(name), "rejected")
    for name in _COLUMNS:
        op.drop_column("rejected", name)
