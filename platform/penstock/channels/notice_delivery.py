"""Telling webhooks and the topic of each change: at least once, and each channel in order.

How far a target was told stands in `delivery`, and moves on only once it took a notice. One
deliverer at a time tells a target, by a lease. One that hung past its lease writes nothing when
it wakes up; a notice that it sends then was sent before, and its version says so.
"""

import hashlib
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from penstock.channels.notices import (
    TOPIC_PREFIX,
    WEBHOOK_PREFIX,
    Notice,
    PendingNotices,
    next_notice,
    pending_notices,
    record_try,
)
from penstock.channels.settings import ChannelSettings
from penstock.channels.webhooks import (
    DeliveryFailure,
    SealedTarget,
    WebhookTarget,
    list_webhooks,
    open_webhook,
    seal_webhooks,
)
from penstock.database.engine import Database
from penstock.database.leases import leased
from penstock.errors import ExtraMissing, PenstockError, SettingInvalid
from penstock.eventlog.kafka import TopicAddress, parse_address
from penstock.eventlog.settings import EventLogSettings
from penstock.http.egress import EgressPolicy
from penstock.metrics import Metrics
from penstock.settings import Settings, without_secrets

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: Targets that a process tells at the same time.
_TARGETS_MAX = 8
#: For a topic that is not there yet: it keeps the newest change of each channel for ever, and all
#: of them for a week.
_CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * 86_400_000)}
#: How often it looks for changes that webhooks or the topic wait for.
_POLL_SECONDS = 0.25
#: Time of one request to a webhook: a receiver that works longer answers first.
WEBHOOK_SECONDS_MAX = 10.0
#: A deliverer that is silent so long loses the target that it was telling.
LEASE_SECONDS = 10.0
#: The longest pause between two tries.
PAUSE_SECONDS_MAX = 300.0

_FIRST_PAUSE_SECONDS = 1.0
#: Pauses are that much shorter at most, so that not all come back at the same moment.
_JITTER = 0.5
#: Where another deliverer has a target, it is asked for again so often in a lease.
_LOOKS_A_LEASE = 4

log_line = structlog.get_logger()


@dataclass(frozen=True)
class TargetStatus:
    """A webhook, or the topic, as it is listed. `attempts`, `try_at` and `problem` are those of the
    channel that failed most often."""

    id: str
    channel: str | None
    address: str
    #: Changes that it has yet to be told.
    waiting: int
    attempts: int
    try_at: int | None
    problem: str | None


def target_statuses(database: Database, settings: Settings, tenant: str) -> list[TargetStatus]:
    """The targets that were not removed, the newest last, and then the topic."""
    topic = topic_target(settings)
    by_target: dict[str, list[PendingNotices]] = defaultdict(list)
    for pending in pending_notices(database, topic, tenant=tenant):
        by_target[pending.target].append(pending)

    def status(name: str, channel: str | None, address: str, target: str) -> TargetStatus:
        waiting = by_target[target]
        worst = max(waiting, key=lambda pending: pending.attempts, default=None)
        problem = worst.problem if worst is not None else None
        return TargetStatus(
            id=name,
            channel=channel,
            address=address,
            waiting=sum(pending.count for pending in waiting),
            attempts=worst.attempts if worst is not None else 0,
            try_at=worst.try_at if worst is not None and problem is not None else None,
            problem=problem,
        )

    hooks = list_webhooks(database, settings, tenant)
    statuses = [status(hook.id, hook.channel, hook.shown, hook.target) for hook in hooks]
    if topic is not None:
        address = without_secrets(settings.room(ChannelSettings).notice_topic_url)
        statuses.append(status("topic", None, address, topic))
    return statuses


def pause_s(attempts: int, longest_s: float, dice: float, *, gone: bool = False) -> float:
    """The pause of a target after so many tries that failed; `dice` is from 0 to 1."""
    doubled = _FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 60)
    whole = longest_s if gone else min(doubled, longest_s)
    return whole * (1 - _JITTER * dice)


class Deliverer:
    """Tells targets from threads of its own. Several may run, in any processes."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        """Raises ExtraMissing, SettingInvalid, SecretKeyUnfit, DatabaseUnreachable."""
        seal_webhooks(database, settings)
        self._database = database
        self._settings = settings
        self._shutdown_s = settings.shutdown_seconds_max
        self._metrics = metrics
        self._topic = open_topic(settings)
        # Who has a host name points it where he wants to: operators allow networks, not names.
        self._egress = EgressPolicy.for_tenants(settings)
        self.topic_target = topic_target(settings)
        self._owner = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_TARGETS_MAX, "deliver")
        #: By target: what is being told now, how to break it off, and which to leave to others.
        self._running: dict[str, Future[None]] = {}
        self._open: dict[str, WebhookTarget | SealedTarget | TopicTarget] = {}
        self._others_until_s: dict[str, float] = {}
        self._pending: list[PendingNotices] = []
        #: Changes that wait, by target.
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
        if self._topic is not None and not late:
            self._topic.close()
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
        self._pending = pending_notices(self._database, self.topic_target)
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
        """Tell all targets what they wait for, whatever their pauses; what is left then. For a
        deliverer that was not started. Raises DatabaseUnreachable."""
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
            opened: WebhookTarget | SealedTarget | TopicTarget | None = self._topic
            if target != self.topic_target:
                webhook_id = target.removeprefix(WEBHOOK_PREFIX)
                opened = open_webhook(
                    self._database, self._settings, webhook_id, WEBHOOK_SECONDS_MAX, self._egress
                )
            if opened is None:
                return
            self._open[target] = opened
            try:
                # Looked at again: until the lease was taken another may have told it.
                for pending in pending_notices(self._database, self.topic_target, target=target):
                    if pending.due or not pauses:
                        self._tell_channel(opened, pending, lease_name)
            finally:
                del self._open[target]

    def _tell_channel(
        self,
        opened: "WebhookTarget | SealedTarget | TopicTarget",
        pending: PendingNotices,
        lease_name: str,
    ) -> None:
        """All that there is, until it fails."""
        target, expected = pending.target, pending.next_version
        kind = target.partition(":")[0]
        while not self._stopping.is_set():
            notice = next_notice(self._database, pending, expected, lease_name, self._owner)
            if notice is None:
                return
            failure = opened.send(notice)
            if failure is None:
                self._metrics.add("notices_told_total", kind=kind)
                if not record_try(self._database, target, notice, expected):
                    return
                expected = notice.version + 1
            elif not self._stopping.is_set():
                self._metrics.add("notice_failures_total", kind=kind)
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


def topic_address(settings: Settings) -> TopicAddress | None:
    """None where the settings name no topic. Raises SettingInvalid."""
    url = settings.room(ChannelSettings).notice_topic_url
    if not url:
        return None
    try:
        return parse_address(url if url.startswith("kafka://") else "")
    except SettingInvalid as error:
        facts = error.facts | {"name": "notice_topic_url"}
        raise SettingInvalid(**facts) from None


def topic_target(settings: Settings) -> str | None:
    """The name of the topic in `delivery`: another topic is told of everything anew. None where the
    settings name no topic. Raises SettingInvalid."""
    address = topic_address(settings)
    if address is None:
        return None
    return TOPIC_PREFIX + hashlib.sha256(address.topic.encode()).hexdigest()[:16]


def open_topic(settings: Settings) -> "TopicTarget | None":
    """None where the settings name no topic. Raises ExtraMissing, SettingInvalid."""
    address = topic_address(settings)
    if address is None:
        return None
    try:
        import kafka  # noqa: F401
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra="kafka", what="The topic for changes of channels") from error
    return TopicTarget(address, request_s=settings.room(EventLogSettings).log_request_seconds_max)


class TopicTarget:
    """Used by one thread at a time, but for `close`."""

    def __init__(self, address: TopicAddress, *, request_s: float) -> None:
        """Nothing is asked before the first notice."""
        self._address = address
        self._request_s = request_s
        self._producer: KafkaProducer | None = None

    def send(self, notice: Notice) -> DeliveryFailure | None:
        """None once all replicas in sync have the notice."""
        from kafka.errors import KafkaError

        try:
            self._open().send(
                self._address.topic,
                key=f"{notice.tenant}/{notice.channel}".encode(),
                value=notice.body.encode(),
                headers=[("penstock-version", str(notice.version).encode())],
            ).get(self._request_s)
        except KafkaError as error:
            self.close()  # one that lost track of a batch may go on failing
            return DeliveryFailure(f"{error or type(error).__name__} ({self._address})")
        return None

    def cut(self) -> None:
        """Kafka's own time-out ends a request."""

    def close(self) -> None:
        from kafka.errors import KafkaError

        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except KafkaError:
                producer._sender.force_close()  # as in penstock.eventlog.kafka.clients

    def _open(self) -> "KafkaProducer":
        """Raises KafkaError."""
        from kafka import KafkaAdminClient, KafkaProducer
        from kafka.errors import TopicAlreadyExistsError

        if self._producer is None:
            client = self._address.client
            request_ms = round(self._request_s * 1000)
            times = {"request_timeout_ms": request_ms, "bootstrap_timeout_ms": request_ms}
            with closing(KafkaAdminClient(**client, **times)) as admin:
                topic = {self._address.topic: {"num_partitions": 1, "configs": _CONFIGS}}
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(topic, timeout_ms=request_ms, wait_for_metadata=True)
            self._producer = KafkaProducer(
                **client,
                acks="all",
                enable_idempotence=True,
                linger_ms=0,
                max_block_ms=request_ms,
                request_timeout_ms=request_ms // 2,
                delivery_timeout_ms=request_ms,
                bootstrap_timeout_ms=request_ms,
                reconnect_backoff_max_ms=1000,
            )
        return self._producer
