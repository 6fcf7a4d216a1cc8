"""Publication: keeping each tenant's Iceberg table in step with its segments."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import sqlalchemy as sa

from penstock.backends.database.engine import clock_us, put_rows
from penstock.backends.database.leases import wait_for_lease
from penstock.core.errors import ExtraMissing
from penstock.core.metrics import Metrics
from penstock.lake import LakeSettings
from penstock.lake.iceberg.event_table import (
    IcebergBusy,
    TableChange,
    commit,
    iceberg_publication,
    metadata_location,
    namespace_of,
    namespaces_elsewhere,
    remove_table,
)
from penstock.lake.lake import Lake
from penstock.lake.tables import lake_head, segment

_LEASE_SECONDS = 30.0
_WAIT_SECONDS_MAX = 60.0


class Publication(msgspec.Struct, frozen=True):
    tenant: str
    files: int
    rows: int
    added: int
    removed: int
    metadata: str | None


class PublishedTable(msgspec.Struct, frozen=True):
    tenant: str
    files: int
    rows: int
    published_at: int
    is_behind: bool
    metadata: str | None


def publish(lake: Lake, tenant: str, *, history: bool = True) -> Publication:
    """Bring a tenant's table in step with its live segments. Without `history` earlier snapshots
    are removed. Raises IcebergBusy, ExtraMissing."""
    with _alone(lake, tenant):
        with lake.database.read() as connection:
            snap = connection.scalar(sa.select(lake_head.c.snap)) or 0
            columns = (segment.c.name, segment.c.rows, segment.c.removed_snap)
            rows = connection.execute(sa.select(*columns).where(segment.c.tenant == tenant)).all()
        live = [row for row in rows if row.removed_snap is None]
        if live:
            names, known = [row.name for row in live], [row.name for row in rows]
            change = commit(lake, tenant, names, known, **({} if history else {"keep": 1}))
        else:
            change = TableChange(0, 0)
            remove_table(lake, tenant)
        count = sum(row.rows for row in live)
        with lake.database.write() as connection:
            row = {"tenant": tenant, "snap": snap, "files": len(live), "rows": count}
            row["published_at"] = clock_us(connection)
            put_rows(connection, iceberg_publication, [row])
        location = metadata_location(lake, tenant)
    return Publication(tenant, len(live), count, *change, location)


def withdraw(lake: Lake, tenant: str) -> bool:
    with _alone(lake, tenant):
        removed = remove_table(lake, tenant)
        with lake.database.write() as connection:
            mine = iceberg_publication.c.tenant == tenant
            connection.execute(sa.delete(iceberg_publication).where(mine))
    return removed


def tenants_due(lake: Lake) -> list[str]:
    """List tenants whose live segments are not published, or whose table is at another place, as
    after a restored backup."""
    live = segment.c.removed_snap.is_(None)
    newest = sa.select(
        segment.c.tenant,
        sa.func.max(sa.func.coalesce(segment.c.removed_snap, segment.c.added_snap)),
        sa.func.count().filter(live),
        sa.func.coalesce(sa.func.sum(segment.c.rows).filter(live), 0),
    ).group_by(segment.c.tenant)
    published = sa.select(iceberg_publication)
    elsewhere = namespaces_elsewhere(lake)
    with lake.database.read() as connection:
        present = {row[0]: tuple(row[1:]) for row in connection.execute(newest)}
        tables = {row.tenant: row for row in connection.execute(published)}
    due = {tenant for tenant, (_, files, _) in present.items() if files and tenant not in tables}
    for tenant, table in tables.items():
        changed, files, rows = present.get(tenant, (0, 0, 0))
        # Removed segments may be collected, or rewritten at the same snap: then the counts differ.
        differs = (files, rows) != (table.files, table.rows)
        if changed > table.snap or differs or namespace_of(tenant) in elsewhere:
            due.add(tenant)
    return sorted(due)


def list_published(lake: Lake) -> list[PublishedTable]:
    due = {*tenants_due(lake)}
    query = sa.select(iceberg_publication).order_by(iceberg_publication.c.tenant)
    rows = lake.database.rows(query)
    return [
        PublishedTable(
            row.tenant, row.files, row.rows, row.published_at, row.tenant in due,
            metadata_location(lake, row.tenant),
        )
        for row in rows
    ]  # fmt: skip


def publish_due(lake: Lake, _metrics: Metrics) -> str | None:
    if lake.settings.room(LakeSettings).iceberg == "off":
        return None
    due = tenants_due(lake)
    for tenant in due:
        publish(lake, tenant)
    return f"published the Iceberg tables of {len(due)} tenants" if due else None


def forget_history(lake: Lake, tenant: str) -> bool:
    """Publish a tenant's table without its older snapshots. Returns whether there is one."""
    with lake.database.read() as connection:
        mine = sa.select(iceberg_publication.c.tenant).where(iceberg_publication.c.tenant == tenant)
        published = connection.scalar(mine) is not None
    if published:
        try:
            publish(lake, tenant, history=False)
        except ExtraMissing:  # whoever publishes makes it again
            withdraw(lake, tenant)
    return published


@contextmanager
def _alone(lake: Lake, tenant: str) -> Iterator[None]:
    """Hold the lease on a table. A process that hangs and loses it does no harm: the catalog
    compares and swaps. Raises IcebergBusy."""
    name, database = f"iceberg {tenant}", lake.database
    with wait_for_lease(database, name, _LEASE_SECONDS, _WAIT_SECONDS_MAX) as mine:
        if not mine:
            raise IcebergBusy(tenant=tenant)
        yield
