"""Tables of Apache Iceberg."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "iceberg_tables",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("table_namespace", sa.String(255), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("metadata_location", sa.String(1000)),
        sa.Column("previous_metadata_location", sa.String(1000)),
        sa.Column("iceberg_type", sa.String(5)),
        sa.PrimaryKeyConstraint(
            "catalog_name", "table_namespace", "table_name", name=op.f("pk_iceberg_tables")
        ),
    )
    op.create_table(
        "iceberg_namespace_properties",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("property_key", sa.String(255), nullable=False),
        sa.Column("property_value", sa.String(1000), nullable=False),
        sa.PrimaryKeyConstraint(
            "catalog_name",
            "namespace",
            "property_key",
            name=op.f("pk_iceberg_namespace_properties"),
        ),
    )
    op.create_table(
        "iceberg_publication",
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("snap", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_iceberg_publication")),
    )


def downgrade() -> None:
    op.drop_table("iceberg_publication")
    op.drop_table("iceberg_namespace_properties")
    op.drop_table("iceberg_tables")
