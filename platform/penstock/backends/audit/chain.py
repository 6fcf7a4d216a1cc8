"""The chains of the audit in the database: entries are appended, read and checked."""

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, String, Table, Text

from penstock.backends.audit.entry import (
    NO_HASH,
    NO_TENANT,
    OPERATOR,
    Action,
    AuditEntry,
    Deed,
    Flaw,
    Head,
    entry_of,
    first_flaw,
)
from penstock.backends.audit.signed_heads import chain_name, head_flaw, sign_head
from penstock.backends.database.engine import Database, clock_us, insert_new
from penstock.backends.database.tables import metadata, name_columns
from penstock.core.settings import ENVIRONMENT_PREFIX, ResolvedSetting, Settings, declarations

#: The newest entry of each tenant's chain. Whoever appends holds this row.
audit_chain = Table(
    "audit_chain",
    metadata,
    *name_columns("tenant", primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    #: The last entry that retention removed.
    Column("cut_number", BigInteger, nullable=False),
    Column("cut_hash", String(64), nullable=False),
)

#: What was done. Rows are only added, and each holds the hash of the one before.
audit_entry = Table(
    "audit_entry",
    metadata,
    #: Empty for what concerns the service and no tenant.
    *name_columns("tenant", primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)


_COLUMNS = [audit_entry.c[field.name] for field in fields(AuditEntry)]


def append(connection: Connection, *deeds: Deed) -> None:
    """Append to the audit, in the transaction of the deeds. Call it last: the tenant's chain is
    locked until the transaction ends."""
    by_tenant: defaultdict[str, list[Deed]] = defaultdict(list)
    for deed in deeds:
        by_tenant[deed.tenant].append(deed)
    for tenant in sorted(by_tenant):
        of_tenant = audit_chain.c.tenant == tenant
        row = {"tenant": tenant, "number": 0, "hash": NO_HASH, "at": 0}
        row |= {"cut_number": 0, "cut_hash": NO_HASH}
        query = sa.select(audit_chain).where(of_tenant).with_for_update()
        held = connection.execute(query).first()
        if held is None:
            insert_new(connection, audit_chain, row)
            held = connection.execute(query).one()
        head = Head(held.number, held.hash)
        # A clock that was set back does not turn the order round.
        at = max(clock_us(connection), held.at)
        entries = []
        for deed in by_tenant[tenant]:
            entry = entry_of(deed, head, at)
            head = Head(entry.number, entry.hash)
            entries.append(asdict(entry))
        connection.execute(sa.insert(audit_entry), entries)
        moved = sa.update(audit_chain).where(of_tenant)
        connection.execute(moved.values(**head._asdict(), at=at))
        sign_head(connection, chain_name("audit", tenant), *head)


def count_aged(connection: Connection, tenant: str, until_us: int) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).where(_aged(tenant, until_us))) or 0)


def cut_chain(connection: Connection, tenant: str, until_us: int) -> int:
    """Remove a tenant's entries up to a time, and count them. The newest entry stays. What is left
    is verified from the last removed one on, which is signed."""
    of_tenant = audit_chain.c.tenant == tenant
    connection.execute(sa.select(audit_chain).where(of_tenant).with_for_update())
    columns = audit_entry.c
    last = sa.select(columns.number, columns.hash).where(_aged(tenant, until_us))
    row = connection.execute(last.order_by(columns.number.desc()).limit(1)).first()
    if row is None:
        return 0
    removed = sa.delete(audit_entry).where(columns.tenant == tenant, columns.number <= row.number)
    count = int(connection.execute(removed).rowcount)
    moved = sa.update(audit_chain).where(of_tenant)
    connection.execute(moved.values(cut_number=row.number, cut_hash=row.hash))
    sign_head(connection, chain_name("audit cut", tenant), row.number, row.hash)
    return count


def _aged(tenant: str, until_us: int) -> sa.ColumnElement[bool]:
    columns, newest = audit_entry.c, sa.select(audit_chain.c.number)
    newest = newest.where(audit_chain.c.tenant == tenant)
    of_tenant = (columns.tenant == tenant) & (columns.number < newest.scalar_subquery())
    return of_tenant & (columns.at <= until_us)


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
) -> list[AuditEntry]:
    """Read entries, tenant by tenant, the newest first. `before` is the tenant and the number of
    the last entry of the page before."""
    columns = audit_entry.c
    query = sa.select(*_COLUMNS).order_by(columns.tenant, columns.number.desc()).limit(limit)
    if tenant is not None:
        query = query.where(columns.tenant == tenant)
    if before is not None:
        place, number = before
        same = (columns.tenant == place) & (columns.number < number)
        query = query.where(same | (columns.tenant > place))
    wanted = {"action": action, "actor": actor, "subject": subject}
    for name, value in wanted.items():
        if value is not None:
            query = query.where(columns[name] == value)
    with database.read() as connection:
        return [AuditEntry(**row._mapping) for row in connection.execute(query)]


def heads_of(
    database: Database, tenant: str | None = None, *, since: int = 0
) -> list[tuple[str, Head]]:
    query = sa.select(audit_chain).where(audit_chain.c.at >= since).order_by(audit_chain.c.tenant)
    if tenant is not None:
        query = query.where(audit_chain.c.tenant == tenant)
    with database.read() as connection:
        return [(row.tenant, Head(row.number, row.hash)) for row in connection.execute(query)]


def flaws_of(
    database: Database, tenant: str | None, kept: Head | None = None
) -> tuple[list[tuple[str, Head]], list[Flaw]]:
    """Check a tenant's chain, or all; returns the heads and the first flaw of each chain."""
    chains, entries = audit_chain.c, audit_entry.c
    ends = sa.select(audit_chain)
    tenants = sa.union(sa.select(chains.tenant), sa.select(entries.tenant).distinct())
    flaws: list[Flaw] = []
    with database.read() as connection:
        of_chains = connection.execute(ends).all()
        heads = {row.tenant: Head(row.number, row.hash) for row in of_chains}
        cuts = {row.tenant: Head(row.cut_number, row.cut_hash) for row in of_chains}
        known = [row.tenant for row in connection.execute(tenants)]
        checked: Sequence[str] = sorted(known) if tenant is None else [tenant]
        for name in checked:
            query = sa.select(*_COLUMNS).where(entries.tenant == name).order_by(entries.number)
            head = heads.get(name, Head(0, NO_HASH))
            with connection.execute(query.execution_options(yield_per=1_000)) as rows:
                present = (AuditEntry(**row._mapping) for row in rows)
                cut = cuts.get(name, Head(0, NO_HASH))
                flaw = first_flaw(name, present, head, kept, cut)
            for chain, signed in (("audit", head), ("audit cut", cut)):
                why = head_flaw(connection, chain_name(chain, name), *signed)
                if flaw is None and why is not None:
                    flaw = Flaw(name, signed.number, why)
            flaws += [flaw] if flaw is not None else []
    return [(name, heads.get(name, Head(0, NO_HASH))) for name in checked], flaws


# Actions that are too frequent for an entry each

_SUBJECTS_MAX = 10_000

_Place = tuple[str, str, Action, str]


class Tally:
    """Counts that are recorded now and then; a kill loses the rest. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._amounts: dict[_Place, Counter[str]] = {}

    def count(
        self, tenant: str, actor: str, action: Action, subject: str = "", **amounts: int
    ) -> None:
        place = (tenant, actor, action, subject)
        with self._lock:
            if place not in self._amounts and len(self._amounts) >= _SUBJECTS_MAX:
                place = (tenant, actor, action, "")
            self._amounts.setdefault(place, Counter()).update(amounts, times=1)

    def flush(self, database: Database) -> None:
        """Record the counts, or keep them where that fails. Raises DatabaseUnreachable."""
        with self._lock:
            amounts, self._amounts = self._amounts, {}
        deeds = [
            Deed(tenant=tenant, actor=actor, action=action, subject=subject, facts=dict(counts))
            for (tenant, actor, action, subject), counts in sorted(amounts.items())
        ]
        try:
            record(database, *deeds)
        except BaseException:
            with self._lock:
                for place, counts in amounts.items():
                    self._amounts.setdefault(place, Counter()).update(counts)
            raise


def note_settings(database: Database, settings: Settings, process: str) -> None:
    """Record the settings that are not at their defaults, if they changed. Raises
    DatabaseUnreachable."""
    rooms: dict[str, object] = {}
    for room in (settings, *settings.rooms):
        rooms |= {name: getattr(room, name) for name in vars(room)}
    facts: dict[str, str | int | None] = {}
    for declared in declarations():
        value = rooms.get(declared.name, declared.default)
        if value != declared.default:
            secret = not declared.repr
            shown = ResolvedSetting(declared.name, value, "", "", secret).shown
            facts[ENVIRONMENT_PREFIX + declared.name.upper()] = str(shown)
    deed = Deed(tenant=NO_TENANT, actor=OPERATOR, action="settings", subject=process, facts=facts)
    last = entries_of(database, NO_TENANT, action="settings", subject=process, limit=1)
    if not last or msgspec.json.decode(last[0].facts) != facts:
        record(database, deed)
