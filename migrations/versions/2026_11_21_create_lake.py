"""Create the tables of the lake, the ledger, the rejected lines and the keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("sha256", name=op.f("uq_api_key_sha256")),
    )
    op.create_table(
        "consent_change",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.String(length=512), nullable=False),
        sa.Column("added_snap", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("consent", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "session_id", "added_snap", name=op.f("pk_consent_change")
        ),
    )
    op.create_table(
        "lake_commit",
        sa.Column("snap", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("snap", name=op.f("pk_lake_commit")),
    )
    op.create_index("ix_lake_commit_committed_at", "lake_commit", ["committed_at"], unique=False)
    op.create_table(
        "lake_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.Column("readable_from", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lake_head")),
    )
    op.create_table(
        "ledger",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("source", sa.String(length=512), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("duplicate", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "source", "hour", "partition", name=op.f("pk_ledger")),
    )
    op.create_table(
        "log_gap",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("log_id", sa.String(length=64), nullable=False),
        sa.Column("from_offset", sa.BigInteger(), nullable=False),
        sa.Column("to_offset", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("found_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_gap")),
    )
    op.create_table(
        "log_partition",
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("log_id", sa.String(length=64), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("partition", name=op.f("pk_log_partition")),
    )
    op.create_table(
        "reader_lease",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reader_lease")),
    )
    op.create_table(
        "rejected",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("source", sa.String(length=512), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("replayed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejected")),
    )
    op.create_index("ix_rejected_received_at", "rejected", ["received_at"], unique=False)
    op.create_table(
        "segment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("log_id", sa.String(length=64), nullable=True),
        sa.Column("from_offset", sa.BigInteger(), nullable=True),
        sa.Column("to_offset", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("sessions_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sessions_sha256", sa.String(length=64), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("ts_min", sa.BigInteger(), nullable=False),
        sa.Column("ts_max", sa.BigInteger(), nullable=False),
        sa.Column("session_filter", sa.LargeBinary(), nullable=False),
        sa.Column("added_snap", sa.BigInteger(), nullable=False),
        sa.Column("removed_snap", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment")),
        sa.UniqueConstraint("name", name=op.f("uq_segment_name")),
    )
    op.create_index("ix_segment_live", "segment", ["removed_snap", "added_snap"], unique=False)
    op.create_table(
        "segment_intent",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_segment_intent")),
    )
    op.create_table(
        "snapshot",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_snapshot")),
    )
    op.execute("INSERT INTO lake_head (id, snap, committed_at, readable_from) VALUES (1, 0, 0, 0)")


def downgrade() -> None:
    op.drop_table("snapshot")
    op.drop_table("segment_intent")
    op.drop_index("ix_segment_live", table_name="segment")
    op.drop_table("segment")
    op.drop_index("ix_rejected_received_at", table_name="rejected")
    op.drop_table("rejected")
    op.drop_table("reader_lease")
    op.drop_table("log_partition")
    op.drop_table("log_gap")
    op.drop_table("ledger")
    op.drop_table("lake_head")
    op.drop_index("ix_lake_commit_committed_at", table_name="lake_commit")
    op.drop_table("lake_commit")
    op.drop_table("consent_change")
    op.drop_table("api_key")
