"""Delivery of notices to webhooks: at least once, and each channel in order."""

import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import msgspec
import sqlalchemy as sa
import structlog

from penstock.backends.database.engine import Database, insert_of, now_us
from penstock.backends.database.leases import leased
from penstock.backends.database.tables import lease
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import PenstockError
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.registry.channels.change import ChangeAnswer
from penstock.registry.channels.history import change_of, notice_of, select_changes
from penstock.registry.channels.tables import channel, delivery, webhook
from penstock.registry.channels.webhooks import (
    WEBHOOK_PREFIX,
    DeliveryFailure,
    WebhookTarget,
    list_webhooks,
    open_webhook,
)

_TARGETS_MAX = 8
_POLL_SECONDS = 0.25
#: Timeout of one request to a webhook.
WEBHOOK_SECONDS_MAX = 10.0
#: A deliverer that is silent this long loses its target to another one.
LEASE_SECONDS = 10.0
PAUSE_SECONDS_MAX = 300.0

_FIRST_PAUSE_SECONDS = 1.0
#: Pauses vary by up to this share, so that retries do not coincide.
_JITTER = 0.5
#: How often per lease to ask for a target that another deliverer holds.
_LOOKS_A_LEASE = 4

log_line = structlog.get_logger()


class PendingNotices(msgspec.Struct, frozen=True):
    target: str
    tenant: str
    channel: str
    next_version: int
    last_version: int
    attempts: int
    try_at: int
    due: bool
    #: The failure of the last try, or None.
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
    """The next notice of a target. None at the end, or if the webhook was removed, or if another
    deliverer holds the lease."""
    mine = sa.exists().where(
        lease.c.name == lease_name, lease.c.owner == owner, lease.c.until >= now_us()
    )
    webhook_id = pending.target.removeprefix(WEBHOOK_PREFIX)
    removed = sa.exists().where(webhook.c.id == webhook_id, webhook.c.removed_at.is_not(None))
    query = select_changes(pending.tenant, pending.channel, version - 1).limit(1)
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
    """Record that a target took a notice, or failed with a problem and is paused."""
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
        # PostgreSQL's driver gives no row count after an insert.
        return connection.execute(move.returning(delivery.c.target)).first() is not None


@dataclass(frozen=True)
class TargetStatus:
    """`attempts`, `try_at` and `problem` describe the channel that failed most often."""

    id: str
    channel: str | None
    address: str
    waiting: int
    attempts: int
    try_at: int | None
    problem: str | None


def target_statuses(database: Database, settings: Settings, tenant: str) -> list[TargetStatus]:
    by_target: dict[str, list[PendingNotices]] = defaultdict(list)
    for pending in pending_notices(database, tenant=tenant):
        by_target[pending.target].append(pending)
    statuses = []
    for hook in list_webhooks(database, settings, tenant):
        waiting = by_target[hook.target]
        worst = max(waiting, key=lambda pending: pending.attempts, default=None)
        problem = worst.problem if worst is not None else None
        status = TargetStatus(
            id=hook.id,
            channel=hook.channel,
            address=hook.shown,
            waiting=sum(pending.count for pending in waiting),
            attempts=worst.attempts if worst is not None else 0,
            try_at=worst.try_at if worst is not None and problem is not None else None,
            problem=problem,
        )
        statuses.append(status)
    return statuses


def pause_s(attempts: int, longest_s: float, dice: float, *, gone: bool = False) -> float:
    """The pause after this many failed tries. `dice` is a random number from 0 to 1."""
    doubled = _FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 60)
    whole = longest_s if gone else min(doubled, longest_s)
    return whole * (1 - _JITTER * dice)


class Deliverer:
    """Delivers notices from its own threads. Several may run, in any processes."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        """Raises SettingInvalid."""
        self._database = database
        self._settings = settings
        self._shutdown_s = settings.shutdown_seconds_max
        self._metrics = metrics
        # Operators allow networks, not host names: a tenant can point a name anywhere.
        self._egress = EgressPolicy.for_tenants(settings)
        self._owner = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_TARGETS_MAX, "deliver")
        #: By target: running deliveries, their open connections, and which to leave to others.
        self._running: dict[str, Future[None]] = {}
        self._open: dict[str, WebhookTarget] = {}
        self._others_until_s: dict[str, float] = {}
        self._pending: list[PendingNotices] = []
        self._waiting: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="deliverer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Start nothing new, and abort running deliveries; they are repeated later."""
        self._stopping.set()
        for target in list(self._open.values()):
            target.cut()

    def stop(self) -> bool:
        """Stop all threads. True if they ended in time."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._shutdown_s)
        self._threads.shutdown(wait=False, cancel_futures=True)
        late = wait(self._running.values(), self._shutdown_s).not_done
        return not late and not self._thread.is_alive()

    def problems(self) -> list[str]:
        """One sentence per failing target, for the operator."""
        problems = {pending.target: pending.problem for pending in self._pending if pending.problem}
        return [
            f"{self._waiting[target]} changes are undelivered to {target}: {problem}"
            for target, problem in problems.items()
        ]

    def warnings(self) -> list[str]:
        """One sentence per failing target, without its host and answers: these are the tenant's."""
        failing = dict.fromkeys(pending.target for pending in self._pending if pending.problem)
        return [
            f"{self._waiting[target]} changes are undelivered to {target}: see"
            " `penstock webhooks list`"
            for target in failing
        ]

    def survey(self) -> list[PendingNotices]:
        """Read the undelivered notices, and update the metrics. Raises DatabaseUnreachable."""
        self._pending = pending_notices(self._database)
        waiting: Counter[str] = Counter()
        for pending in self._pending:
            waiting[pending.target] += pending.count
        failing = {pending.target for pending in self._pending if pending.problem is not None}
        for target in {*waiting, *self._waiting}:
            self._metrics.set("notices_waiting", waiting[target], target=target)
            self._metrics.set("notice_target_failing", target in failing, target=target)
        self._waiting = waiting
        return self._pending

    def deliver_now(self) -> list[PendingNotices]:
        """Deliver all pending notices now, ignoring pauses; returns the rest."""
        for target in {pending.target for pending in self.survey()}:
            self._running[target] = self._threads.submit(self._deliver, target, pauses=False)
        for future in self._running.values():
            future.result()
        return self.survey()

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            _log_failure("looking for changes", self._look)

    def _look(self) -> None:
        for target in {pending.target for pending in self.survey() if pending.due}:
            running = self._running.get(target)
            others = self._others_until_s.get(target, 0) > time.monotonic()
            if (running is None or running.done()) and not others:
                self._running[target] = self._threads.submit(
                    _log_failure, target, partial(self._deliver, target, pauses=True)
                )

    def _deliver(self, target: str, *, pauses: bool) -> None:
        lease_name = f"tell:{target}"
        with leased(self._database, lease_name, self._owner, LEASE_SECONDS) as mine:
            if not mine:
                self._others_until_s[target] = time.monotonic() + LEASE_SECONDS / _LOOKS_A_LEASE
                return
            webhook_id = target.removeprefix(WEBHOOK_PREFIX)
            opened = open_webhook(
                self._database, self._settings, webhook_id, WEBHOOK_SECONDS_MAX, self._egress
            )
            if opened is None:
                return
            if isinstance(opened, WebhookTarget):
                self._open[target] = opened
            try:
                # Read again: another deliverer may have sent it before the lease was taken.
                for pending in pending_notices(self._database, target=target):
                    if pending.due or not pauses:
                        self._deliver_channel(opened, pending, lease_name)
            finally:
                self._open.pop(target, None)

    def _deliver_channel(
        self, opened: WebhookTarget | DeliveryFailure, pending: PendingNotices, lease_name: str
    ) -> None:
        """Deliver the pending notices of a channel until one fails."""
        target, expected = pending.target, pending.next_version
        while not self._stopping.is_set():
            notice = next_notice(self._database, pending, expected, lease_name, self._owner)
            if notice is None:
                return
            failure = opened if isinstance(opened, DeliveryFailure) else opened.send(notice)
            if failure is None:
                self._metrics.add("notices_delivered_total")
                if not record_try(self._database, target, notice, expected):
                    return
                expected = notice.version + 1
            elif not self._stopping.is_set():
                self._metrics.add("notice_failures_total")
                attempts = pending.attempts + 1 if expected == pending.next_version else 1
                own_s = pause_s(attempts, PAUSE_SECONDS_MAX, random.random(), gone=failure.gone)
                again_s = max(own_s, min(failure.pause_s, PAUSE_SECONDS_MAX))
                why, pause = failure.problem, round(again_s, 1)
                place = {"target": target, "channel": pending.channel, "version": notice.version}
                log_line.warning("a notice was not delivered", **place, why=why, again_in_s=pause)
                record_try(self._database, target, notice, expected, problem=why, pause_s=again_s)
                return


def _log_failure(subject: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        unexpected = not isinstance(error, PenstockError)
        log_line.warning("delivery failed", what=subject, why=str(error), exc_info=unexpected)
