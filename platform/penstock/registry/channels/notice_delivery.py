"""Telling webhooks of each change: at least once, and each channel in order."""

import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import structlog

from penstock.backends.database.engine import Database
from penstock.backends.database.leases import leased
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import PenstockError
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.registry.channels.notices import (
    WEBHOOK_PREFIX,
    PendingNotices,
    next_notice,
    pending_notices,
    record_try,
)
from penstock.registry.channels.webhooks import (
    DeliveryFailure,
    WebhookTarget,
    list_webhooks,
    open_webhook,
)

_TARGETS_MAX = 8
_POLL_SECONDS = 0.25
#: Time of one request to a webhook: a receiver that works longer answers first.
WEBHOOK_SECONDS_MAX = 10.0
#: A deliverer that is silent so long loses the target that it was telling.
LEASE_SECONDS = 10.0
PAUSE_SECONDS_MAX = 300.0

_FIRST_PAUSE_SECONDS = 1.0
#: Pauses are that much shorter at most, so that not all come back at the same moment.
_JITTER = 0.5
#: Where another deliverer has a target, it is asked for again so often in a lease.
_LOOKS_A_LEASE = 4

log_line = structlog.get_logger()


@dataclass(frozen=True)
class TargetStatus:
    """`attempts`, `try_at` and `problem` are those of the channel that failed most often."""

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
    """The pause of a target after so many tries that failed; `dice` is from 0 to 1."""
    doubled = _FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 60)
    whole = longest_s if gone else min(doubled, longest_s)
    return whole * (1 - _JITTER * dice)


class Deliverer:
    """Tells targets from threads of its own. Several may run, in any processes."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        """Raises SettingInvalid."""
        self._database = database
        self._settings = settings
        self._shutdown_s = settings.shutdown_seconds_max
        self._metrics = metrics
        # Who has a host name points it where he wants to: operators allow networks, not names.
        self._egress = EgressPolicy.for_tenants(settings)
        self._owner = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_TARGETS_MAX, "deliver")
        #: By target: what is being told now, how to break it off, and which to leave to others.
        self._running: dict[str, Future[None]] = {}
        self._open: dict[str, WebhookTarget] = {}
        self._others_until_s: dict[str, float] = {}
        self._pending: list[PendingNotices] = []
        self._waiting: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="deliverer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Begin nothing, and break off what is under way: it is told again later."""
        self._stopping.set()
        for target in list(self._open.values()):
            target.cut()

    def stop(self) -> bool:
        """True if it ended in time."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._shutdown_s)
        self._threads.shutdown(wait=False, cancel_futures=True)
        late = wait(self._running.values(), self._shutdown_s).not_done
        return not late and not self._thread.is_alive()

    def problems(self) -> list[str]:
        """A sentence for each target that fails, for its operator."""
        problems = {pending.target: pending.problem for pending in self._pending if pending.problem}
        return [
            f"{target} waits to be told of {self._waiting[target]} changes: {problem}"
            for target, problem in problems.items()
        ]

    def warnings(self) -> list[str]:
        """The same for everybody: hosts, and what they answer, are the tenant's."""
        failing = dict.fromkeys(pending.target for pending in self._pending if pending.problem)
        return [
            f"{target} waits to be told of {self._waiting[target]} changes: `penstock webhooks "
            "list` says why"
            for target in failing
        ]

    def survey(self) -> list[PendingNotices]:
        """The notices that targets have yet to take. Raises DatabaseUnreachable."""
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

    def tell_now(self) -> list[PendingNotices]:
        """Tell all what they wait for, whatever their pauses; what is left then."""
        for target in {pending.target for pending in self.survey()}:
            self._running[target] = self._threads.submit(self._tell, target, pauses=False)
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
                    _log_failure, target, partial(self._tell, target, pauses=True)
                )

    def _tell(self, target: str, *, pauses: bool) -> None:
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
                # Looked at again: until the lease was taken another may have told it.
                for pending in pending_notices(self._database, target=target):
                    if pending.due or not pauses:
                        self._tell_channel(opened, pending, lease_name)
            finally:
                self._open.pop(target, None)

    def _tell_channel(
        self, opened: WebhookTarget | DeliveryFailure, pending: PendingNotices, lease_name: str
    ) -> None:
        """All that there is, until it fails."""
        target, expected = pending.target, pending.next_version
        while not self._stopping.is_set():
            notice = next_notice(self._database, pending, expected, lease_name, self._owner)
            if notice is None:
                return
            failure = opened if isinstance(opened, DeliveryFailure) else opened.send(notice)
            if failure is None:
                self._metrics.add("notices_told_total")
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
                log_line.warning("a change was not told", **place, why=why, again_in_s=pause)
                record_try(self._database, target, notice, expected, problem=why, pause_s=again_s)
                return


def _log_failure(subject: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        unexpected = not isinstance(error, PenstockError)
        log_line.warning("delivery failed", what=subject, why=str(error), exc_info=unexpected)
