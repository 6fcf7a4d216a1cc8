"""Shards lie in the folders of their tenants, and two tenants may build the same one.

Those that are there stay where they lie: `shards/` and the first digits of their digest."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
#: It would look for shards in the folders of before, and take another tenant's for its own.
breaks_older_code = True

_DIGEST_BEGINS_AT, _FOLDER_HEX = len("sha256:") + 1, 16


def upgrade() -> None:
    op.add_column("shard", sa.Column("folder", sa.String(255), nullable=True))
    op.add_column("shard_file", sa.Column("tenant", sa.String(128), nullable=True))
    digits = f"substr(id, {_DIGEST_BEGINS_AT}, {_FOLDER_HEX})"
    op.execute(f"update shard set folder = 'shards/' || {digits}")
    its_shard = "(select tenant from shard where shard.id = shard_file.shard)"
    op.execute(f"update shard_file set tenant = {its_shard}")
    op.execute("delete from shard_file where tenant is null")
    with op.batch_alter_table("shard") as batch:
        batch.alter_column("folder", existing_type=sa.String(255), nullable=False)
    with op.batch_alter_table("shard_file") as batch:
        batch.alter_column("tenant", existing_type=sa.String(128), nullable=False)
    op.drop_index("ix_shard_file_shard", "shard_file")
    op.create_index("ix_shard_file_shard", "shard_file", ["shard", "tenant"])
    _change_key("shard", ["id", "tenant"])
    _change_key("shard_record", ["shard", "tenant"])


def downgrade() -> None:
    _change_key("shard_record", ["shard"])
    _change_key("shard", ["id"])
    op.drop_index("ix_shard_file_shard", "shard_file")
    op.create_index("ix_shard_file_shard", "shard_file", ["shard"])
    op.drop_column("shard_file", "tenant")
    op.drop_column("shard", "folder")


def _change_key(table: str, columns: list[str]) -> None:
    name = f"pk_{table}"
    with op.batch_alter_table(table) as batch:
        batch.drop_constraint(name, type_="primary")
        batch.create_primary_key(name, columns)
