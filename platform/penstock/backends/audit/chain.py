"""The audit in the database, a chain for each tenant: entries are appended, read and checked."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Index, String, Table, Text

from penstock.backends.audit.entry import (
    BEGINNING,
    NO_TENANT,
    OPERATOR,
    Action,
    Deed,
    Flaw,
    Head,
    entry_of,
)
from penstock.backends.audit.hash_chain import Chain, chain_head, chains_in, heads_in, link_columns
from penstock.backends.database.engine import Database
from penstock.backends.database.tables import metadata, name_columns
from penstock.core.settings import ResolvedSetting, Settings, declarations

#: What was done. Rows are only added, and each holds the hash of the one before.
audit_entry = Table(
    "audit_entry",
    metadata,
    #: Empty for what concerns the service and no tenant.
    *name_columns("tenant", primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", Text, nullable=False),
    Column("facts", Text, nullable=False),
    *link_columns(),
    Index("ix_audit_entry_subject", "tenant", "subject"),
)


def _chain_of(tenant: str) -> Chain:
    return Chain(audit_entry, {"tenant": tenant})


def append(connection: Connection, *deeds: Deed) -> None:
    """Append to the audit, in the transaction of the deeds. Call it last: the tenant's chain is
    locked until the transaction ends."""
    by_tenant: defaultdict[str, list[Deed]] = defaultdict(list)
    for deed in deeds:
        by_tenant[deed.tenant].append(deed)
    for tenant in sorted(by_tenant):
        _chain_of(tenant).append(connection, *map(entry_of, by_tenant[tenant]))


def count_aged(database: Database, tenant: str, until_us: int) -> int:
    return int(database.scalar(_aged(sa.func.count(), tenant, until_us)) or 0)


def cut_aged(database: Database, tenant: str, until_us: int) -> int:
    """Remove a tenant's entries up to a time, and count them. The newest entry stays. Where one was
    altered all stay: whoever alters the time of one could have evidence removed."""
    chain = _chain_of(tenant)
    with database.read() as connection:
        last = connection.scalar(_aged(sa.func.max(audit_entry.c.number), tenant, until_us))
        if last is None or chain.flaw(connection) is not None:
            return 0
    with database.write() as connection:
        return chain.cut(connection, last)


def _aged(what: Any, tenant: str, until_us: int) -> sa.Select[Any]:
    columns, newest = audit_entry.c, heads_in(audit_entry).subquery().c
    number = sa.select(newest.number).where(newest.tenant == tenant).scalar_subquery()
    mine = (columns.tenant == tenant, columns.number < number, columns.at <= until_us)
    return sa.select(what).where(*mine)


def record(database: Database, *deeds: Deed) -> None:
    """Append deeds in a transaction of their own. Raises DatabaseUnreachable."""
    if deeds:
        with database.write() as connection:
            append(connection, *deeds)


def entries_of(
    database: Database,
    tenant: str | None,
    *,
    before: tuple[str, int] | None = None,
    action: Action | None = None,
    actor: str | None = None,
    subject: str | None = None,
    limit: int = 100,
) -> Sequence[sa.Row[Any]]:
    """Read entries, tenant by tenant, the newest first. `before` is the tenant and the number of
    the last entry of the page before."""
    columns = audit_entry.c
    query = sa.select(audit_entry).order_by(columns.tenant, columns.number.desc()).limit(limit)
    wanted = {"tenant": tenant, "action": action, "actor": actor, "subject": subject}
    query = query.filter_by(**{name: value for name, value in wanted.items() if value is not None})
    if before is not None:
        place, number = before
        same = (columns.tenant == place) & (columns.number < number)
        query = query.where(same | (columns.tenant > place))
    return database.rows(query)


def heads_of(connection: Connection, *, since: int = 0) -> list[tuple[str, Head]]:
    """Read the newest entry of each tenant's chain that has grown since a time."""
    heads = heads_in(audit_entry).where(chain_head.c.at >= since).order_by(chain_head.c.tenant)
    return [(row.tenant, Head(row.number, row.hash)) for row in connection.execute(heads)]


def check_audit(
    database: Database, tenant: str | None = None, noted: Head | None = None
) -> list[tuple[str, Head, Flaw | None]]:
    """Check a tenant's chain, or all: the newest entry of each, and the first flaw. `noted` is an
    entry that somebody noted earlier."""
    with database.read() as connection:
        heads = dict(heads_of(connection))
        chains = chains_in(connection, audit_entry, "tenant")
        names = [chain.whose["tenant"] for chain in chains] if tenant is None else [tenant]
        return [
            (name, heads.get(name, BEGINNING), _chain_of(name).flaw(connection, noted))
            for name in names
        ]


# Actions that are too frequent for an entry each

_PLACES_MAX = 10_000


class Tally:
    """Counts by place that are stored now and then; a kill loses the rest. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._amounts: dict[Any, Counter[str]] = {}

    def add(self, place: object, amounts: Mapping[str, int], *, beyond: object) -> None:
        """Count at a place, or where there are too many at the one for what is beyond."""
        with self._lock:
            if place not in self._amounts and len(self._amounts) >= _PLACES_MAX:
                place = beyond
            self._amounts.setdefault(place, Counter()).update(amounts)

    def flush(self, database: Database) -> None:
        """Store the counts, or keep them where that fails. Raises DatabaseUnreachable."""
        with self._lock:
            amounts, self._amounts = self._amounts, {}
        try:
            self.store(database, sorted(amounts.items()))
        except BaseException:
            with self._lock:
                for place, counts in amounts.items():
                    self._amounts.setdefault(place, Counter()).update(counts)
            raise

    def store(self, database: Database, counts: Sequence[tuple[Any, Counter[str]]]) -> None:
        raise NotImplementedError


class DeedTally(Tally):
    """Deeds, by tenant, actor, action and subject."""

    def count(
        self, tenant: str, actor: str, action: Action, subject: str = "", **amounts: int
    ) -> None:
        who = (tenant, actor, action)
        self.add((*who, subject), {**amounts, "times": 1}, beyond=(*who, ""))

    def store(self, database: Database, counts: Sequence[tuple[Any, Counter[str]]]) -> None:
        deeds = (
            Deed(tenant, actor, action, subject, facts)
            for (tenant, actor, action, subject), facts in counts
        )
        record(database, *deeds)


def note_settings(database: Database, settings: Settings, process: str) -> None:
    """Record the settings that are not at their defaults, if they changed. Raises
    DatabaseUnreachable."""
    values: dict[str, object] = {}
    for room in (settings, *settings.rooms):
        values |= vars(room)
    facts: dict[str, str | int | None] = {}
    for declared in declarations():
        value = values.get(declared.name, declared.default)
        if value != declared.default:
            known = ResolvedSetting(declared.name, value, "", "", secret=not declared.repr)
            facts[known.variable] = str(known.shown)
    deed = Deed(NO_TENANT, OPERATOR, "settings", process, facts)
    last = entries_of(database, NO_TENANT, action="settings", subject=process, limit=1)
    if not last or msgspec.json.decode(last[0].facts) != facts:
        record(database, deed)
