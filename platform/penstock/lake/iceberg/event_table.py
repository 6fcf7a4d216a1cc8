"""The Iceberg table of a tenant's events.

Its data files are the segments themselves. Manifests hold bounds of times alone, so that no
metadata quotes an event."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import sqlalchemy as sa

from penstock.backends.database.tables import metadata, required
from penstock.backends.storage.s3 import S3Address
from penstock.core.errors import ExtraMissing, PenstockError
from penstock.core.files import tenant_folder
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


#: As `pyiceberg` and the JDBC catalog of Spark and Trino have it.
iceberg_table = sa.Table(
    "iceberg_tables",
    metadata,
    sa.Column("catalog_name", sa.String(255), primary_key=True),
    sa.Column("table_namespace", sa.String(255), primary_key=True),
    sa.Column("table_name", sa.String(255), primary_key=True),
    sa.Column("metadata_location", sa.String(1000)),
    sa.Column("previous_metadata_location", sa.String(1000)),
    sa.Column("iceberg_type", sa.String(5)),
)

iceberg_namespace = sa.Table(
    "iceberg_namespace_properties",
    metadata,
    sa.Column("catalog_name", sa.String(255), primary_key=True),
    sa.Column("namespace", sa.String(255), primary_key=True),
    sa.Column("property_key", sa.String(255), primary_key=True),
    sa.Column("property_value", sa.String(1000), nullable=False),
)

#: What the table of a tenant holds. A tenant whose segments changed since `snap` is due.
iceberg_publication = sa.Table(
    "iceberg_publication",
    metadata,
    sa.Column("tenant", sa.String(128), primary_key=True),
    *required(sa.BigInteger, "snap", "files", "rows", "published_at"),
)


CATALOG = "penstock"
TABLE = "events"
FOLDER = "iceberg"
_SNAPSHOTS_KEPT = 5
_PROPERTIES = {
    "format-version": "2",
    # No bounds of texts: they would be the beginnings of what people wrote.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.ts": "full",
    "write.metadata.metrics.column.received_at": "full",
    "write.metadata.previous-versions-max": "1",
    # Manifests are small, and a search for a text in them finds it.
    "write.avro.compression-codec": "null",
}
_TYPES = {
    "string": "string",
    "int64": "long",
    "int16": "int",
    "timestamp[us, tz=UTC]": "timestamptz",
}


class TableChange(NamedTuple):
    added: int
    removed: int


def folder_of(tenant: str) -> str:
    return f"{FOLDER}/{tenant_folder(tenant)}/{TABLE}"


def namespace_of(tenant: str) -> str:
    return tenant_folder(tenant)


def location_of(lake: Lake, name: str) -> str:
    address = lake.store.address(name)
    return f"file://{address}" if lake.store.local else address


def open_catalog(lake: Lake) -> "SqlCatalog":
    """Raises ExtraMissing."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError as error:
        raise ExtraMissing(what="A table of Iceberg", extra="iceberg") from error
    url = lake.database.url.render_as_string(hide_password=False)
    catalog = SqlCatalog(CATALOG, uri=url, init_catalog_tables="false", **_access(lake))
    catalog.engine.dispose()
    catalog.engine = lake.database.engine  # with the lake's own settings of its connections
    return catalog


def _access(lake: Lake) -> Mapping[str, str]:
    properties = {"warehouse": location_of(lake, FOLDER)}
    if not lake.store.local:
        address = S3Address.of(urlsplit(lake.settings.store_url))
        known = {"s3.endpoint": address.endpoint, "s3.region": address.region}
        properties |= {name: value for name, value in known.items() if value}
    return properties


def commit(
    lake: Lake, tenant: str, names: Iterable[str], known: Iterable[str], keep: int = _SNAPSHOTS_KEPT
) -> TableChange:
    """Make the table hold these segments, in one commit. At most `keep` snapshots stay, and only
    while all their files are `known` to the lake. Unused metadata is deleted. Raises IcebergBusy if
    somebody else committed meanwhile."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    table = opened(lake, tenant)
    wanted = {location_of(lake, name) for name in names}
    held = data_files(table)
    change = TableChange(len(wanted - held.keys()), len(held.keys() - wanted))
    try:
        if change != TableChange(0, 0):
            removed = [held[path] for path in held.keys() - wanted]
            _replace(table, sorted(wanted - held.keys()), removed)
        _expire(table.refresh(), {location_of(lake, name) for name in known}, keep)
    except (CommitFailedException, ValidationException) as error:
        raise IcebergBusy(tenant=tenant) from error
    _delete_unneeded(lake, tenant, table.refresh())
    return change


def opened(lake: Lake, tenant: str) -> "Table":
    return _loaded(lake, tenant) or _created(lake, tenant)


def data_files(table: "Table", snapshot_id: int | None = None) -> "dict[str, DataFile]":
    current = table.current_snapshot()
    snapshot = current if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return {}
    manifests = snapshot.manifests(table.io)
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def remove_table(lake: Lake, tenant: str) -> bool:
    """Remove the table, without Iceberg's library. Returns whether there was one."""
    with lake.database.write() as connection:
        removed = connection.execute(sa.delete(iceberg_table).where(_is_of(tenant))).rowcount
    for stored in list(lake.store.list(f"{folder_of(tenant)}/")):
        lake.store.delete(stored.name)
    return bool(removed)


def metadata_location(lake: Lake, tenant: str) -> str | None:
    """Find the metadata that engines without a catalog read; None if there is no table."""
    query = sa.select(iceberg_table.c.metadata_location).where(_is_of(tenant))
    location: str | None = lake.database.scalar(query)
    return location


def _is_of(tenant: str) -> sa.ColumnElement[bool]:
    columns = iceberg_table.c
    return (columns.catalog_name == CATALOG) & (columns.table_namespace == namespace_of(tenant))


def namespaces_elsewhere(lake: Lake) -> set[str]:
    """Find the namespaces whose tables are at an earlier place of the lake."""
    folder = f"{location_of(lake, FOLDER)}/"
    here = iceberg_table.c.metadata_location.startswith(folder, autoescape=True)
    query = sa.select(iceberg_table.c.table_namespace).where(
        iceberg_table.c.catalog_name == CATALOG, ~here
    )
    return {*lake.database.scalars(query)}


def _loaded(lake: Lake, tenant: str) -> "Table | None":
    """Load the table; None if there is none here. One of another place, as after a restored backup,
    is removed."""
    from pyiceberg.exceptions import NoSuchTableError

    with suppress(FileNotFoundError):
        try:
            table = open_catalog(lake).load_table((*namespace_of(tenant).split("."), TABLE))
        except NoSuchTableError:
            return None
        if table.location() == location_of(lake, folder_of(tenant)):
            return table
    remove_table(lake, tenant)
    return None


def _created(lake: Lake, tenant: str) -> "Table":
    from pyiceberg.schema import Schema
    from pyiceberg.types import FixedType, NestedField

    fields: list[Any] = []
    for number, column in enumerate(EVENT_ROWS, 1):
        kind = _TYPES.get(str(column.type)) or FixedType(column.type.byte_width)
        facts = {"field_id": number, "name": column.name, "field_type": kind}
        fields.append(NestedField(**facts, required=not column.nullable))
    schema = Schema(*fields)
    mapping = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
    catalog = open_catalog(lake)
    namespace = tuple(namespace_of(tenant).split("."))
    catalog.create_namespace_if_not_exists(namespace)
    return catalog.create_table(
        (*namespace, TABLE),
        schema,
        location=location_of(lake, folder_of(tenant)),
        properties={**_PROPERTIES, **mapping, "penstock.tenant": json.dumps(tenant)},
    )


def _replace(table: "Table", added: list[str], removed: "list[DataFile]") -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class Replacement(_OverwriteFiles):
        """A replacement whose manifests do not name the removed files."""

        def _deleted_entries(self) -> list[Any]:
            super()._deleted_entries()  # it refuses what is not there
            return []

    transaction = table.transaction()
    operation = Operation.OVERWRITE if removed else Operation.APPEND
    with Replacement(operation, transaction, table.io) as snapshot:
        for path in added:
            file = parquet_file_to_data_file(
                io=table.io, table_metadata=transaction.table_metadata, file_path=path
            )
            snapshot.append_data_file(file)
        for file in removed:
            snapshot.delete_data_file(file)
    transaction.commit_transaction()


def _expire(table: "Table", known: set[str], keep: int) -> None:
    newest = sorted(table.snapshots(), key=lambda snapshot: -(snapshot.sequence_number or 0))
    expired = [snapshot.snapshot_id for snapshot in newest[keep:]]
    expired += [
        snapshot.snapshot_id
        for snapshot in newest[1:keep]
        if not data_files(table, snapshot.snapshot_id).keys() <= known
    ]
    if expired:
        table.maintenance.expire_snapshots().by_ids(expired).commit()


def _delete_unneeded(lake: Lake, tenant: str, table: "Table") -> None:
    """Delete metadata that neither the present version names nor the one before, which a reader may
    use."""
    needed = {table.metadata_location}
    needed |= {entry.metadata_file for entry in table.metadata.metadata_log}
    for snapshot in table.snapshots():
        needed.add(snapshot.manifest_list)
        needed |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    for stored in list(lake.store.list(f"{folder_of(tenant)}/metadata/")):
        if location_of(lake, stored.name) not in needed:
            lake.store.delete(stored.name)


# Errors


class IcebergBusy(PenstockError, exit_status=1, http_status=409):
    """The Iceberg table of {tenant} is being published by another process. Publish again later."""
