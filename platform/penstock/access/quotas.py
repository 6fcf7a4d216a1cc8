"""Quotas: how much each tenant may send, query and store.

A process learns from the ledger what others accepted, so a tenant may exceed a quota by what it
sends meanwhile.
"""

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from penstock.access import QUOTAS, AccessSettings, QuotaName
from penstock.access.tables import tenant_quota
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import OPERATOR, Deed
from penstock.backends.database.engine import Database, put_rows
from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.settings import Settings
from penstock.events.event import is_tenant
from penstock.lake.tables import ledger

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class QuotaUse:
    """The use of a quota. `used` is None for queries, which each process counts alone; a `maximum`
    of None means no limit."""

    tenant: str
    name: QuotaName
    used: int | None
    maximum: int | None


class Quotas:
    """The quotas as one process knows them."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        self._database = database
        self._defaults = default_quotas(settings)
        self._clock = clock
        self._lock = threading.Lock()
        self._own: dict[tuple[str, str], int] = {}  # maxima of tenants that have their own
        self._hour_us = 0
        self._taken: Counter[tuple[str, str]] = Counter()
        self._ledger: dict[tuple[str, str], int] = {}

    def refresh(self) -> None:
        """Read the maxima, and the use by all processes. Raises DatabaseUnreachable."""
        own = own_quotas(self._database)
        now_us = self._clock.now_us()
        used = read_use(self._database, now_us)
        with self._lock:
            self._begin_hour(now_us)
            self._own, self._ledger = own, used

    def require(self, tenant: str, *names: QuotaName) -> None:
        """Refuse if one of these quotas is used up. The request that exceeds one is still accepted.
        Raises QuotaUsedUp."""
        now_us = self._clock.now_us()
        with self._lock:
            self._begin_hour(now_us)
            for name in names:
                maximum = self._own.get((tenant, name), self._defaults[name])
                used = max(self._taken[tenant, name], self._ledger.get((tenant, name), 0))
                if not maximum or used < maximum:
                    continue
                end_us, until = self._hour_us + HOUR_US, None
                if name != "stored_bytes":
                    until = datetime.fromtimestamp(end_us / 1_000_000, UTC).isoformat()
                wait_s = (end_us - now_us) // 1_000_000 + 1 if until else HOUR_US // 1_000_000
                raise QuotaUsedUp(quota=name, maximum=maximum, until=until, retry_after_s=wait_s)

    def count(self, tenant: str, name: QuotaName, amount: int = 1) -> None:
        with self._lock:
            self._begin_hour(self._clock.now_us())
            self._taken[tenant, name] += amount

    def _begin_hour(self, now_us: int) -> None:
        hour_us = now_us - now_us % HOUR_US
        if hour_us != self._hour_us:
            self._hour_us = hour_us
            self._taken.clear()
            self._ledger = {key: n for key, n in self._ledger.items() if key[1] == "stored_bytes"}


def default_quotas(settings: Settings) -> dict[QuotaName, int]:
    """The quotas of tenants without their own; 0 means no limit."""
    room = settings.room(AccessSettings)
    return {
        "events_per_hour": room.tenant_events_per_hour_max,
        "queries_per_hour": room.tenant_queries_per_hour_max,
        "stored_bytes": room.tenant_stored_bytes_max,
    }


def read_use(database: Database, now_us: int) -> dict[tuple[str, str], int]:
    """The use by tenant from the ledger: events of this hour, and all bytes."""
    columns = ledger.c
    this_hour = columns.hour == now_us - now_us % HOUR_US
    events = sa.func.sum(sa.case((this_hour, columns.accepted), else_=0))
    query = sa.select(columns.tenant, events, sa.func.sum(columns.bytes)).group_by(columns.tenant)
    used: dict[tuple[str, str], int] = {}
    for tenant, count, size in database.rows(query):
        used[tenant, "events_per_hour"] = int(count)
        used[tenant, "stored_bytes"] = int(size or 0)
    return used


def own_quotas(database: Database) -> dict[tuple[str, str], int]:
    """The maxima of tenants that have their own."""
    with database.read() as connection:
        rows = connection.execute(sa.select(tenant_quota))
        return {(row.tenant, row.name): row.maximum for row in rows}


def set_quota(
    database: Database, tenant: str, name: str, maximum: int | None, *, by: str = OPERATOR
) -> None:
    """Set a maximum; None restores the default. Raises InvalidInput."""
    if name not in QUOTAS:
        raise InvalidInput(what=f"The quota {name!r}", why=f"it must be one of {', '.join(QUOTAS)}")
    if not is_tenant(tenant):
        why = "it is empty, too long or unprintable"
        raise InvalidInput(what=f"The tenant {tenant!r}", why=why)
    key: dict[str, Any] = {"tenant": tenant, "name": name}
    with database.write() as connection:
        if maximum is None:
            mine = [tenant_quota.c[column] == value for column, value in key.items()]
            connection.execute(sa.delete(tenant_quota).where(*mine))
        else:
            put_rows(connection, tenant_quota, [key | {"maximum": maximum}])
        append(connection, Deed(tenant, by, "quota", f"quota {name}", {"maximum": maximum}))


def survey_quotas(database: Database, settings: Settings, clock: Clock) -> list[QuotaUse]:
    """The quotas of all tenants with data or a quota of their own."""
    used = read_use(database, clock.now_us())
    own = own_quotas(database)
    defaults = default_quotas(settings)
    rows = []
    for tenant in sorted({tenant for tenant, _ in {*used, *own}}):
        for name in QUOTAS:
            maximum = own.get((tenant, name), defaults[name]) or None
            rows.append(QuotaUse(tenant, name, used.get((tenant, name)), maximum))
    return rows


class QuotaUsedUp(PenstockError, http_status=429):
    """The tenant's quota {quota} of {maximum} is used up {how_long}. Nothing of the request was
    accepted. An operator can raise it with `penstock quotas set`."""

    def __init__(self, *, quota: str, maximum: int, until: str | None, retry_after_s: int) -> None:
        super().__init__(quota=quota, maximum=maximum, until=until, retry_after_s=retry_after_s)
        self.facts["how_long"] = f"until {until}" if until else "until some of it is removed"
        self.http_headers = {"Retry-After": str(retry_after_s)}

    @property
    def http_fields(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in ("quota", "maximum", "until")}
