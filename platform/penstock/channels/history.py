"""The history of a channel in the database: its changes are read here, and proved to be as they
were written."""

from collections.abc import Iterator
from dataclasses import fields

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.change import Action, Change, Misfit, first_misfit
from penstock.channels.errors import ChannelUnknown, HistoryDamaged
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.digests import text_digest
from penstock.database.engine import Database
from penstock.gate.tables import gate_policy, verdict
from penstock.gate.verdict import Outcome

_COLUMNS = [channel_change.c[one.name] for one in fields(Change)]


def channel_changes(
    database: Database,
    tenant: str,
    name: str,
    *,
    after: int = 0,
    limit: int | None = None,
    latest: bool = False,
) -> list[Change]:
    """The changes of a channel after a version, the oldest first; of more than `limit` the first
    ones, or the `latest`. Raises ChannelUnknown."""
    columns = channel_change.c
    query = sa.select(*_COLUMNS).where(columns.tenant == tenant, columns.channel == name)
    query = query.where(columns.version > after).limit(limit)
    query = query.order_by(columns.version.desc() if latest else columns.version)
    with database.read() as connection:
        if newest_change(connection, tenant, name) is None:
            raise ChannelUnknown(name=name)
        found = [change_of(row) for row in connection.execute(query)]
    return found[::-1] if latest else found


def verify_history(database: Database, tenant: str, name: str) -> Misfit | None:
    """The first version of a channel that is not as it was written, be it the change itself or the
    verdict or the policy that it rests on. Raises ChannelUnknown."""
    query = sa.select(channel.c.version, channel.c.hash).where(
        channel.c.tenant == tenant, channel.c.name == name
    )
    with database.read() as connection:
        found = connection.execute(query).first() if name.isprintable() else None
        if found is None and newest_change(connection, tenant, name) is None:
            raise ChannelUnknown(name=name)
        head = (found.version, found.hash) if found is not None else (0, "")
        of_changes = first_misfit(_all_changes(connection, tenant, name), head)
        of_verdicts = _verdict_misfit(connection, tenant, name)
        of_policies = _policy_misfit(connection, tenant, name)
    misfits = [one for one in (of_changes, of_verdicts, of_policies) if one is not None]
    return min(misfits, key=lambda one: one.version, default=None)


def check_history(database: Database, tenant: str, name: str) -> None:
    """Raises HistoryDamaged, ChannelUnknown."""
    if misfit := verify_history(database, tenant, name):
        raise HistoryDamaged(channel=name, version=misfit.version, why=misfit.why)


def verdict_outcomes(database: Database, tenant: str, name: str) -> dict[str, Outcome]:
    """What the verdicts behind a channel's changes said, by their ids."""
    query = sa.select(verdict.c.id, verdict.c.outcome).where(
        verdict.c.tenant == tenant, verdict.c.channel == name
    )
    with database.read() as connection:
        return {row.id: row.outcome for row in connection.execute(query)}


def newest_change(
    connection: Connection, tenant: str, name: str, *, action: Action | None = None
) -> Change | None:
    """The newest change of a channel, or the newest of a kind."""
    if not name.isprintable():  # nobody's name, and some databases do not even take it
        return None
    columns = channel_change.c
    query = sa.select(*_COLUMNS).where(columns.tenant == tenant, columns.channel == name)
    if action is not None:
        query = query.where(columns.action == action)
    row = connection.execute(query.order_by(columns.version.desc()).limit(1)).first()
    return change_of(row) if row is not None else None


def change_of(row: sa.Row[tuple[object, ...]]) -> Change:
    return Change(**row._mapping)


def _all_changes(connection: Connection, tenant: str, name: str) -> Iterator[Change]:
    columns = channel_change.c
    query = (
        sa.select(*_COLUMNS)
        .where(columns.tenant == tenant, columns.channel == name)
        .order_by(columns.version)
    )
    for row in connection.execute(query.execution_options(yield_per=1_000)):
        yield change_of(row)


def _verdict_misfit(connection: Connection, tenant: str, name: str) -> Misfit | None:
    """Documents are named by their digests."""
    columns = channel_change.c
    query = (
        sa.select(columns.version, columns.verdict, verdict.c.document)
        .outerjoin(
            verdict,
            sa.and_(verdict.c.tenant == columns.tenant, verdict.c.id == columns.verdict),
        )
        .where(columns.tenant == tenant, columns.channel == name, columns.verdict.is_not(None))
        .order_by(columns.version)
    )
    for row in connection.execute(query.execution_options(yield_per=50)):
        if row.document is None or text_digest(row.document) != row.verdict:
            return Misfit(row.version, f"its verdict {row.verdict} is not there as it was written")
    return None


def _policy_misfit(connection: Connection, tenant: str, name: str) -> Misfit | None:
    """Policies are named by their digests too; each is looked at once."""
    columns = channel_change.c
    first = (
        sa.select(columns.policy, sa.func.min(columns.version).label("version"))
        .where(columns.tenant == tenant, columns.channel == name, columns.policy.is_not(None))
        .group_by(columns.policy)
        .subquery()
    )
    query = (
        sa.select(first.c.version, first.c.policy, gate_policy.c.text)
        .outerjoin(
            gate_policy,
            sa.and_(gate_policy.c.tenant == tenant, gate_policy.c.digest == first.c.policy),
        )
        .order_by(first.c.version)
    )
    for row in connection.execute(query):
        if row.text is None or text_digest(row.text) != row.policy:
            return Misfit(row.version, f"its policy {row.policy} is not there as it was written")
    return None


def first_version_since(connection: Connection, change: Change, *names: str) -> int:
    """The first of the latest changes that have the same values as this one in these columns."""
    columns = channel_change.c
    other = (
        sa.select(columns.version)
        .where(columns.tenant == change.tenant, columns.channel == change.channel)
        .where(sa.or_(*(columns[name].is_distinct_from(getattr(change, name)) for name in names)))
        .order_by(columns.version.desc())
        .limit(1)
    )
    return (connection.scalar(other) or 0) + 1
