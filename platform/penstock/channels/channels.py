"""Channels as they are: where each points, and how it came to that."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.errors import ChannelUnknown, HistoryDamaged
from penstock.channels.history import Action, Change, Misfit, first_misfit
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.tables import checkpoint
from penstock.database.engine import Database
from penstock.gate.tables import gate_policy, verdict
from penstock.gate.verdicts import Outcome

_COLUMNS = [channel_change.c[one.name] for one in fields(Change)]


@dataclass(frozen=True, kw_only=True)
class ChannelState:
    """Where a channel points now. Before its first promotion it has a policy at most."""

    tenant: str
    name: str
    version: int
    checkpoint: str | None
    digest: str | None
    uri: str | None
    #: When that checkpoint began to serve there.
    since: int | None
    #: The one that served before it.
    previous: str | None
    canary: str | None
    canary_digest: str | None
    canary_uri: str | None
    canary_share: float | None
    pinned: bool
    policy: str | None
    #: Of the newest change.
    hash: str
    changed_at: int


def state(database: Database, tenant: str, name: str) -> ChannelState:
    """Raises ChannelUnknown."""
    with database.read() as connection:
        return state_in(connection, tenant, name)


def state_in(connection: Connection, tenant: str, name: str) -> ChannelState:
    """The same within a transaction. Raises ChannelUnknown."""
    change = newest(connection, tenant, name)
    if change is None:
        raise ChannelUnknown(name=name)
    return _state_of(connection, change)


def list_channels(database: Database, tenant: str) -> list[ChannelState]:
    """All of a tenant, by name."""
    with database.read() as connection:
        return [_state_of(connection, one) for one in _newest_of_all(connection, tenant)]


def history(
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
        if newest(connection, tenant, name) is None:
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
        if found is None and newest(connection, tenant, name) is None:
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


def outcomes_of(database: Database, tenant: str, name: str) -> dict[str, Outcome]:
    """What the verdicts behind a channel's changes said, by their ids."""
    query = sa.select(verdict.c.id, verdict.c.outcome).where(
        verdict.c.tenant == tenant, verdict.c.channel == name
    )
    with database.read() as connection:
        return {row.id: row.outcome for row in connection.execute(query)}


def policy_of(database: Database, at: ChannelState) -> str | None:
    """The gate policy of a channel, as it was written; None where it has none. Raises
    HistoryDamaged."""
    if at.policy is None:
        return None
    query = sa.select(gate_policy.c.text).where(
        gate_policy.c.tenant == at.tenant, gate_policy.c.digest == at.policy
    )
    with database.read() as connection:
        text = connection.scalar(query)
    if text is None or text_digest(text) != at.policy:
        why = f"its policy {at.policy} is not there as it was written"
        raise HistoryDamaged(channel=at.name, version=at.version, why=why)
    return str(text)


# Within a transaction


def newest(
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


def channels_at(connection: Connection, tenant: str, name: str) -> list[Change]:
    """The newest changes of the channels that are at a checkpoint, or try it on a part."""
    found = _newest_of_all(connection, tenant)
    return [one for one in found if name in (one.checkpoint, one.canary)]


def _newest_of_all(connection: Connection, tenant: str) -> Iterator[Change]:
    query = (
        sa.select(*_COLUMNS)
        .join(
            channel,
            sa.and_(
                channel.c.tenant == channel_change.c.tenant,
                channel.c.name == channel_change.c.channel,
                channel.c.version == channel_change.c.version,
            ),
        )
        .where(channel.c.tenant == tenant)
        .order_by(channel.c.name)
    )
    for row in connection.execute(query).all():
        yield change_of(row)


def _state_of(connection: Connection, change: Change) -> ChannelState:
    places = {
        row.name: row
        for row in connection.execute(
            sa.select(checkpoint.c.name, checkpoint.c.digest, checkpoint.c.uri).where(
                checkpoint.c.tenant == change.tenant,
                checkpoint.c.name.in_([change.checkpoint or "", change.canary or ""]),
            )
        )
    }
    current, canary = places.get(change.checkpoint or ""), places.get(change.canary or "")
    return ChannelState(
        tenant=change.tenant,
        name=change.channel,
        version=change.version,
        checkpoint=change.checkpoint,
        digest=change.digest,
        uri=current.uri if current is not None else None,
        since=_since(connection, change),
        previous=change.previous,
        canary=change.canary,
        canary_digest=canary.digest if canary is not None else None,
        canary_uri=canary.uri if canary is not None else None,
        canary_share=change.canary_share,
        pinned=change.pinned,
        policy=change.policy,
        hash=change.hash,
        changed_at=change.at,
    )


def _since(connection: Connection, change: Change) -> int | None:
    """When the first of the latest changes with this checkpoint was made."""
    if change.checkpoint is None:
        return None
    columns = channel_change.c
    mine = (columns.tenant == change.tenant, columns.channel == change.channel)
    other = (
        sa.select(columns.version)
        .where(*mine, columns.checkpoint.is_distinct_from(change.checkpoint))
        .order_by(columns.version.desc())
        .limit(1)
        .scalar_subquery()
    )
    first = (
        sa.select(columns.at)
        .where(*mine, columns.version > sa.func.coalesce(other, 0))
        .order_by(columns.version)
        .limit(1)
    )
    return connection.scalar(first)


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
