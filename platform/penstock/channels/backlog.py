"""What targets have yet to be told, as the database knows it.

A target is a webhook or the topic. All that stands before `next_version` was taken by it.
"""

import hashlib
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.channels.notices import Notice, notices_in
from penstock.channels.settings import ChannelSettings
from penstock.channels.tables import channel, delivery, webhook
from penstock.channels.topic import topic_address
from penstock.channels.webhooks import list_webhooks
from penstock.database.engine import Database, insert_of, now_us
from penstock.database.tables import lease
from penstock.settings import Settings, without_secrets

_WEBHOOK = "webhook:"
_TOPIC = "kafka:"


@dataclass(frozen=True)
class Backlog:
    """A channel of which a target has yet to be told."""

    target: str
    tenant: str
    channel: str
    next_version: int
    last_version: int
    #: Tries to tell the next one that failed.
    attempts: int
    #: The next try is not before this moment.
    try_at: int
    #: It has come, by the database's clock.
    due: bool
    #: What went wrong the last time; None where nobody tried yet.
    problem: str | None

    @property
    def changes(self) -> int:
        return self.last_version - self.next_version + 1


def topic_target(settings: Settings) -> str | None:
    """What the topic is called where it is written down how far it was told: another one is told
    of everything anew. None where the settings name none."""
    address = topic_address(settings)
    if address is None:
        return None
    return _TOPIC + hashlib.sha256(address.topic.encode()).hexdigest()[:16]


def kind_of(target: str) -> str:
    return "webhook" if target.startswith(_WEBHOOK) else "kafka"


def webhook_id(target: str) -> str:
    return target.removeprefix(_WEBHOOK)


def backlogs(
    database: Database, topic: str | None, *, tenant: str | None = None, target: str | None = None
) -> list[Backlog]:
    """All that have to be told of something; `topic` is the topic as a target, if there is one."""
    hooks = sa.select((_WEBHOOK + webhook.c.id).label("target"), *_CHANNEL).join_from(
        webhook,
        channel,
        sa.and_(
            channel.c.tenant == webhook.c.tenant,
            sa.or_(webhook.c.channel.is_(None), webhook.c.channel == channel.c.name),
        ),
    )
    told = hooks.where(webhook.c.removed_at.is_(None))
    if topic is not None:
        the_topic = sa.literal(topic, sa.String).label("target")
        every = sa.union_all(told, sa.select(the_topic, *_CHANNEL)).subquery()
    else:
        every = told.subquery()
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
        return [Backlog(**row) for row in connection.execute(query).mappings()]


_CHANNEL = (channel.c.tenant, channel.c.name, channel.c.version)


@dataclass(frozen=True)
class TargetStatus:
    """A webhook, or the topic, as it is listed. Of several channels the one that fails speaks."""

    id: str
    channel: str | None
    address: str
    #: Changes that it has yet to be told, and the tries of the next one that failed.
    waiting: int
    attempts: int
    try_at: int | None
    problem: str | None


def target_statuses(database: Database, settings: Settings, tenant: str) -> list[TargetStatus]:
    """Those that were not removed, the newest last."""
    topic = topic_target(settings)
    by_target: dict[str, list[Backlog]] = {}
    for one in backlogs(database, topic, tenant=tenant):
        by_target.setdefault(one.target, []).append(one)
    found = [
        _standing(one.id, one.channel, one.shown, by_target.get(one.target, []))
        for one in list_webhooks(database, tenant)
    ]
    if topic is not None:
        address = without_secrets(settings.room(ChannelSettings).notice_topic_url)
        found.append(_standing("topic", None, address, by_target.get(topic, [])))
    return found


def _standing(id_: str, channel: str | None, address: str, waiting: list[Backlog]) -> TargetStatus:
    worst = max(waiting, key=lambda one: one.attempts, default=None)
    failing = worst is not None and worst.problem is not None
    return TargetStatus(
        id=id_,
        channel=channel,
        address=address,
        waiting=sum(one.changes for one in waiting),
        attempts=worst.attempts if worst is not None else 0,
        try_at=worst.try_at if worst is not None and failing else None,
        problem=worst.problem if worst is not None else None,
    )


def next_notice(
    database: Database, one: Backlog, version: int, lease_name: str, owner: str
) -> Notice | None:
    """The first notice from a version on. None where there is none, and also when the target was
    removed, or another deliverer has it by now."""
    mine = sa.select(
        sa.exists().where(
            lease.c.name == lease_name, lease.c.owner == owner, lease.c.until >= now_us()
        )
    )
    removed = sa.select(
        sa.exists().where(webhook.c.id == webhook_id(one.target), webhook.c.removed_at.is_not(None))
    )
    with database.read() as connection:
        if not connection.scalar(mine) or connection.scalar(removed):
            return None
        found = notices_in(connection, one.tenant, one.channel, version - 1, at_most=1)
    return found[0] if found else None


def mark_taken(database: Database, target: str, told: Notice, expected: int) -> bool:
    """It took this notice. False when another deliverer has told it of more by now."""
    return _move(database, target, told, expected, next_version=told.version + 1)


def mark_failed(
    database: Database, target: str, failed: Notice, expected: int, *, problem: str, pause_s: float
) -> bool:
    """It did not take this notice, and is left alone for a while."""
    later = now_us() + round(pause_s * 1_000_000)
    return _move(database, target, failed, expected, problem=problem, try_at=later)


def _move(
    database: Database,
    target: str,
    notice: Notice,
    expected: int,
    *,
    next_version: int | None = None,
    problem: str | None = None,
    try_at: sa.ColumnElement[int] | int = 0,
) -> bool:
    """Only where nobody else has moved it."""
    place = {"target": target, "tenant": notice.tenant, "channel": notice.channel}
    failed = next_version is None
    found = {"next_version": next_version or expected, "problem": problem, "try_at": try_at}
    with database.write() as connection:
        made = insert_of(connection)(delivery).values(**place, **found, attempts=int(failed))
        moved = made.on_conflict_do_update(
            index_elements=list(place),
            set_=found | {"attempts": delivery.c.attempts + 1 if failed else 0},
            where=delivery.c.next_version == expected,
        )
        # Not by a count of rows: after an insert PostgreSQL's driver has none.
        return connection.execute(moved.returning(delivery.c.target)).first() is not None
