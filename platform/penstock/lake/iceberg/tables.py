"""The tables of the Iceberg catalog, as `pyiceberg` and the JDBC catalog of Spark and Trino have
them, and how far each tenant's table has come."""

from sqlalchemy import BigInteger, Column, String, Table

from penstock.backends.database.tables import metadata, required

iceberg_table = Table(
    "iceberg_tables",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5)),
)

iceberg_namespace = Table(
    "iceberg_namespace_properties",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("property_key", String(255), primary_key=True),
    Column("property_value", String(1000), nullable=False),
)

#: What the table of a tenant holds. A tenant whose segments changed since `snap` is due.
iceberg_publication = Table(
    "iceberg_publication",
    metadata,
    Column("tenant", String(128), primary_key=True),
    *required(BigInteger, "snap", "files", "rows", "published_at"),
)
