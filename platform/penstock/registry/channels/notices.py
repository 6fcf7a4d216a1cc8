"""What others are told of a channel: its changes, in order."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, insert_of, now_us
from penstock.backends.database.tables import lease
from penstock.backends.terminal.output import time_text
from penstock.registry.channels.change import Change, ChangeAnswer
from penstock.registry.channels.history import CHANGE_COLUMNS, change_of
from penstock.registry.channels.tables import channel, channel_change, delivery, webhook
from penstock.registry.checkpoints.tables import checkpoint

NOTICES_AT_ONCE = 100

#: Targets are called `webhook:ID`.
WEBHOOK_PREFIX = "webhook:"


def notice_of(connection: Connection, change: Change) -> ChangeAnswer:
    facts = vars(change) | {"at": time_text(change.at)}
    return ChangeAnswer(**facts, **checkpoint_places(connection, change))


def checkpoint_places(connection: Connection, change: Change) -> dict[str, Any]:
    names = [change.checkpoint or "", change.canary or ""]
    query = sa.select(checkpoint.c.name, checkpoint.c.digest, checkpoint.c.uri).where(
        checkpoint.c.tenant == change.tenant, checkpoint.c.name.in_(names)
    )
    places = {name: (digest, uri) for name, digest, uri in connection.execute(query)}
    (_, uri), (canary_digest, canary_uri) = (places.get(name, (None, None)) for name in names)
    return {"uri": uri, "canary_digest": canary_digest, "canary_uri": canary_uri}


def notices_after(
    database: Database, tenant: str, channel: str, version: int, *, up_to: int | None = None
) -> list[ChangeAnswer]:
    """The next ones, in order; at most NOTICES_AT_ONCE."""
    with database.read() as connection:
        return notices_in(connection, tenant, channel, version, up_to=up_to)


def notices_in(
    connection: Connection, tenant: str, channel: str, version: int, *, up_to: int | None = None
) -> list[ChangeAnswer]:
    query = _select_changes(tenant, channel, version).limit(NOTICES_AT_ONCE)
    if up_to is not None:
        query = query.where(channel_change.c.version <= up_to)
    changes = [change_of(row) for row in connection.execute(query)]
    return [notice_of(connection, change) for change in changes]


def _select_changes(tenant: str, channel: str, after: int) -> sa.Select[Any]:
    of = channel_change.c
    place = of.tenant == tenant, of.channel == channel, of.version > after
    return sa.select(*CHANGE_COLUMNS).where(*place).order_by(of.version)


@dataclass(frozen=True)
class PendingNotices:
    target: str
    tenant: str
    channel: str
    next_version: int
    last_version: int
    attempts: int
    try_at: int
    due: bool
    #: The failure of the last try; None where nothing was tried yet.
    problem: str | None

    @property
    def count(self) -> int:
        return self.last_version - self.next_version + 1


def pending_notices(
    database: Database, *, tenant: str | None = None, target: str | None = None
) -> list[PendingNotices]:
    columns = (channel.c.tenant, channel.c.name, channel.c.version)
    every = (
        sa.select((WEBHOOK_PREFIX + webhook.c.id).label("target"), *columns)
        .where(channel.c.tenant == webhook.c.tenant, webhook.c.removed_at.is_(None))
        .where(sa.or_(webhook.c.channel.is_(None), webhook.c.channel == channel.c.name))
        .subquery()
    )
    done = sa.and_(
        delivery.c.target == every.c.target,
        delivery.c.tenant == every.c.tenant,
        delivery.c.channel == every.c.name,
    )
    try_at = sa.func.coalesce(delivery.c.try_at, 0)
    next_version = sa.func.coalesce(delivery.c.next_version, 1)
    query = (
        sa.select(
            every.c.target,
            every.c.tenant,
            every.c.name.label("channel"),
            next_version.label("next_version"),
            every.c.version.label("last_version"),
            sa.func.coalesce(delivery.c.attempts, 0).label("attempts"),
            try_at.label("try_at"),
            (try_at <= now_us()).label("due"),
            delivery.c.problem,
        )
        .select_from(every.outerjoin(delivery, done))
        .where(every.c.version >= next_version)
        .order_by(every.c.target, every.c.tenant, every.c.name)
    )
    if tenant is not None:
        query = query.where(every.c.tenant == tenant)
    if target is not None:
        query = query.where(every.c.target == target)
    with database.read() as connection:
        return [PendingNotices(**row) for row in connection.execute(query).mappings()]


def next_notice(
    database: Database, pending: PendingNotices, version: int, lease_name: str, owner: str
) -> ChangeAnswer | None:
    """None where there is none, the target was removed, or another deliverer has it by now."""
    mine = sa.exists().where(
        lease.c.name == lease_name, lease.c.owner == owner, lease.c.until >= now_us()
    )
    webhook_id = pending.target.removeprefix(WEBHOOK_PREFIX)
    removed = sa.exists().where(webhook.c.id == webhook_id, webhook.c.removed_at.is_not(None))
    query = _select_changes(pending.tenant, pending.channel, version - 1).limit(1)
    with database.read() as connection:
        row = connection.execute(query.where(mine, ~removed)).first()
        return notice_of(connection, change_of(row)) if row is not None else None


def record_try(
    database: Database,
    target: str,
    tried: ChangeAnswer,
    expected: int,
    *,
    problem: str | None = None,
    pause_s: float = 0.0,
) -> bool:
    """The target took a notice; or there was a problem, and it is left alone for a while."""
    place = {"target": target, "tenant": tried.tenant, "channel": tried.channel}
    failed = problem is not None
    state = {
        "next_version": expected if failed else tried.version + 1,
        "problem": problem,
        "try_at": now_us() + round(pause_s * 1_000_000) if failed else 0,
    }
    with database.write() as connection:
        row = insert_of(connection)(delivery).values(**place, **state, attempts=int(failed))
        move = row.on_conflict_do_update(
            index_elements=list(place),
            set_=state | {"attempts": delivery.c.attempts + 1 if failed else 0},
            where=delivery.c.next_version == expected,
        )
        # Not by a count of rows: after an insert PostgreSQL's driver has none.
        return connection.execute(move.returning(delivery.c.target)).first() is not None
