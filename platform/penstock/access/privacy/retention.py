"""Retention: how long data are kept, by kind and tenant, and the runs that remove older data.

Rooms bring the kinds. Upkeep runs each rule once a day, and resumes interrupted runs.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec
import sqlalchemy as sa

from penstock.access.privacy.tombstones import remove_aged_tombstones
from penstock.access.tables import DONE, erasure, retention_rule, retention_run
from penstock.backends.audit.chain import append, count_aged, cut_aged
from penstock.backends.audit.entry import OPERATOR, Deed
from penstock.backends.audit.hash_chain import chain_head
from penstock.backends.database.engine import clock_us, put_rows
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput
from penstock.core.metrics import Metrics
from penstock.core.room import rooms
from penstock.lake.lake import Lake
from penstock.lake.tables import ledger, segment

#: The tenant of a rule for all tenants without their own.
EVERY_TENANT = ""
#: Kinds that remove sessions, and leave tombstones.
_EVENTS, _NO_TRAIN = "events", "no_train"
DAY_SECONDS = 86_400
#: The longest age that calendars allow.
_AGE_SECONDS_MAX = 100 * 366 * DAY_SECONDS


class RetentionScope(msgspec.Struct, frozen=True):
    """All data of a tenant up to a time."""

    tenant: str
    until_us: int
    breaks_snapshots: bool = False


@dataclass(frozen=True)
class RetentionCount:
    """The removed data; `held` are bytes kept by snapshots, by name."""

    sessions: int = 0
    rows: int = 0
    bytes: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


class RetentionPart(msgspec.Struct, frozen=True):
    """A room's kind of data: how to count and remove what is too old."""

    count: Callable[[Lake, RetentionScope], RetentionCount]
    run: Callable[[Lake, RetentionScope], RetentionCount]


def retention_parts() -> dict[str, RetentionPart]:
    parts = {name: part for room in rooms() for name, part in room.retention().items()}
    return dict(sorted(parts.items()))


# Rules


@dataclass(frozen=True)
class RetentionRule:
    tenant: str
    kind: str
    #: None for ever.
    age_s: int | None
    breaks_snapshots: bool
    set_by: str
    set_at: int


def set_rule(
    lake: Lake, kind: str, age_s: int | None, *, tenant: str, breaks_snapshots: bool, by: str
) -> None:
    kinds = retention_parts()
    if kind not in kinds:
        raise InvalidInput(what=f"The kind {kind}", why=f"it must be one of {', '.join(kinds)}")
    least_s = 0 if kind == _NO_TRAIN else DAY_SECONDS
    if age_s is not None and not least_s <= age_s <= _AGE_SECONDS_MAX:
        why = f"it is a day at least, or 0d of {_NO_TRAIN}, and 100 years at most"
        raise InvalidInput(what="The age", why=why)
    tenants = _tenants(lake)
    with lake.database.write() as connection:
        row: dict[str, Any] = {"tenant": tenant, "kind": kind, "age_s": age_s, "set_by": by}
        row |= {"breaks_snapshots": breaks_snapshots, "set_at": clock_us(connection)}
        connection.execute(sa.delete(retention_run).where(retention_run.c.kind == kind))
        put_rows(connection, retention_rule, [row])
        facts = {"kind": kind, "age_s": age_s, "breaks_snapshots": str(breaks_snapshots)}
        append(connection, Deed(tenant, by, "retention", facts=facts))
        if kind in (_EVENTS, _NO_TRAIN):
            remove_aged_tombstones(connection, [tenant] if tenant != EVERY_TENANT else tenants)


def list_rules(lake: Lake) -> list[RetentionRule]:
    columns = [retention_rule.c[name] for name in RetentionRule.__dataclass_fields__]
    query = sa.select(*columns).order_by(*retention_rule.primary_key.columns)
    return [RetentionRule(*row) for row in lake.database.rows(query)]


def rules_of_tenants(lake: Lake) -> Iterator[RetentionRule]:
    """Each rule with each tenant that it applies to."""
    rules = {(rule.tenant, rule.kind): rule for rule in list_rules(lake)}
    tenants = _tenants(lake) | {tenant for tenant, _ in rules if tenant != EVERY_TENANT}
    for tenant in sorted(tenants):
        for kind in sorted({kind for _, kind in rules}):
            rule = rules.get((tenant, kind)) or rules.get((EVERY_TENANT, kind))
            if rule is not None and rule.age_s is not None:
                yield replace(rule, tenant=tenant)


def _tenants(lake: Lake) -> set[str]:
    columns = (segment.c.tenant, ledger.c.tenant, chain_head.c.tenant)
    with lake.database.read() as connection:
        names = [connection.scalars(sa.select(column).distinct()).all() for column in columns]
    return {name for found in names for name in found if name}


# Runs


class RetentionOutcome(msgspec.Struct, frozen=True):
    tenant: str
    kind: str
    until_us: int
    count: RetentionCount


def run_rules(
    lake: Lake, *, dry: bool = False, by: str = OPERATOR, due_only: bool = False
) -> Iterator[RetentionOutcome]:
    """Remove what is too old, or with `dry` count it. `due_only` skips rules that ran within a day,
    or within their age if shorter."""
    parts = retention_parts()
    for rule in list(rules_of_tenants(lake)):
        if rule.kind not in parts or rule.age_s is None:
            continue
        with lake.database.read() as connection:
            now = clock_us(connection)
            ran = sa.select(retention_run.c.ended_at).where(*_of_rule(rule))
            ended_at = connection.scalar(ran)
        pause_us = min(rule.age_s, DAY_SECONDS) * SECOND_US
        if due_only and ended_at is not None and ended_at + pause_us > now:
            continue
        until_us = now - rule.age_s * SECOND_US
        scope = RetentionScope(rule.tenant, until_us, rule.breaks_snapshots)
        part = parts[rule.kind]
        count = part.count(lake, scope) if dry else part.run(lake, scope)
        if not dry:
            _note_run(lake, rule, count, by)
        yield RetentionOutcome(rule.tenant, rule.kind, until_us, count)


def _of_rule(rule: RetentionRule) -> tuple[sa.ColumnElement[bool], ...]:
    return (retention_run.c.tenant == rule.tenant, retention_run.c.kind == rule.kind)


def _note_run(lake: Lake, rule: RetentionRule, count: RetentionCount, by: str) -> None:
    with lake.database.write() as connection:
        connection.execute(sa.delete(retention_run).where(*_of_rule(rule)))
        row = {"tenant": rule.tenant, "kind": rule.kind, "report": json.dumps(asdict(count))}
        connection.execute(sa.insert(retention_run).values(**row, ended_at=clock_us(connection)))
        if count.rows or count.sessions:
            amounts = {"sessions": count.sessions, "rows": count.rows, "bytes": count.bytes}
            facts = {**amounts, "age_s": rule.age_s}
            append(connection, Deed(rule.tenant, by, "retention", rule.kind, facts))


def keep_to_rules(lake: Lake, _metrics: Metrics) -> str | None:
    """Run all rules that are due: an upkeep job."""
    outcomes = list(run_rules(lake, due_only=True))
    rows = sum(outcome.count.rows for outcome in outcomes)
    return f"removed {rows} rows by retention" if rows else None


# Finished erasures, since their reports name who asked. Tombstones stay.


def _finished(scope: RetentionScope) -> sa.ColumnElement[bool]:
    done = (erasure.c.state == DONE) & (erasure.c.tenant == scope.tenant)
    return done & (erasure.c.finished_at <= scope.until_us)


def _count_erasures(lake: Lake, scope: RetentionScope) -> RetentionCount:
    with lake.database.read() as connection:
        query = sa.select(sa.func.count()).select_from(erasure).where(_finished(scope))
        return RetentionCount(rows=connection.execute(query).scalar_one())


def _remove_erasures(lake: Lake, scope: RetentionScope) -> RetentionCount:
    with lake.database.write() as connection:
        rows = connection.execute(sa.delete(erasure).where(_finished(scope))).rowcount
    return RetentionCount(rows=rows)


ERASURES = RetentionPart(_count_erasures, _remove_erasures)


# The audit. What is left is verified from the last removed entry on.

AUDIT = RetentionPart(
    lambda lake, of: RetentionCount(rows=count_aged(lake.database, of.tenant, of.until_us)),
    lambda lake, of: RetentionCount(rows=cut_aged(lake.database, of.tenant, of.until_us)),
)
