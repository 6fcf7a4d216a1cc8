"""Telling webhooks and the topic of each change: at least once, and each channel in order.

How far a target was told stands in `delivery`, and moves on only once it took a notice. One
deliverer at a time tells a target, by a lease. One that hung past its lease writes nothing when
it wakes up; a notice that it sends then was sent before, and its version says so.
"""

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import structlog

from penstock.channels.backlog import (
    Backlog,
    backlogs,
    kind_of,
    mark_failed,
    mark_taken,
    next_notice,
    topic_target,
    webhook_id,
)
from penstock.channels.topic import open_topic
from penstock.channels.webhooks import DeliveryFailure, NoticeTarget, open_webhook
from penstock.database.engine import Database
from penstock.database.leases import leased
from penstock.errors import PenstockError
from penstock.metrics import Metrics
from penstock.settings import Settings

#: Webhooks that a process tells at the same time.
_DELIVERIES_MAX = 8
#: How often it looks for changes that webhooks or the topic wait for.
_POLL_SECONDS = 0.05
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


def pause_s(attempts: int, longest_s: float, dice: float, *, gone: bool = False) -> float:
    """How long to leave a target alone after so many tries that failed; `dice` from 0 to 1."""
    doubled = _FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 60)
    whole = longest_s if gone else min(doubled, longest_s)
    return whole * (1 - _JITTER * dice)


class Deliverer:
    """Tells targets from threads of its own. Several may run, in any processes."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        """Raises ExtraMissing, SettingInvalid."""
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._topic = open_topic(settings)
        self.topic_target = topic_target(settings)
        self._owner = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_DELIVERIES_MAX, "deliver")
        #: By target: what is being told now, how to break it off, and which to leave to others.
        self._running: dict[str, Future[None]] = {}
        self._open: dict[str, NoticeTarget] = {}
        self._others_until_s: dict[str, float] = {}
        self._behind: list[Backlog] = []
        self._thread = threading.Thread(target=self._run, name="deliverer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Begin nothing, and break off what is under way: it is told again later."""
        self._stopping.set()
        for target in list(self._open.values()):
            target.cut()

    def stop(self) -> bool:
        """Whether it ended in time."""
        self.end_soon()
        within_s = self._settings.shutdown_seconds_max
        if self._thread.is_alive():
            self._thread.join(within_s)
        self._threads.shutdown(wait=False, cancel_futures=True)
        late = wait(self._running.values(), within_s).not_done
        if self._topic is not None and not late:
            self._topic.close()
        return not late and not self._thread.is_alive()

    def problems(self) -> list[str]:
        """A sentence for each target that fails."""
        failing = {one.target: one for one in self._behind if one.problem is not None}
        waiting = _changes_by_target(self._behind)
        return [
            f"{target} waits to be told of {waiting[target]} changes: {one.problem}"
            for target, one in failing.items()
        ]

    def tell_now(self) -> list[Backlog]:
        """Tell all targets what they wait for, whatever their pauses; what is left then. For a
        deliverer that was not started. Raises DatabaseUnreachable."""
        for target in {one.target for one in self.survey()}:
            self._submit(target, pauses=False)
        wait(self._running.values())
        for one in self._running.values():
            one.result()
        return self.survey()

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            self._try("looking for changes", self._look)

    def _look(self) -> None:
        for target in {one.target for one in self.survey() if one.due}:
            self._submit(target, pauses=True)

    def survey(self) -> list[Backlog]:
        """What has yet to be told. Raises DatabaseUnreachable."""
        found = backlogs(self._database, self.topic_target)
        self._show(found)
        self._behind = found
        return found

    def _show(self, found: list[Backlog]) -> None:
        waiting = _changes_by_target(found)
        failing = {one.target for one in found if one.problem is not None}
        for target in {*waiting, *(one.target for one in self._behind)}:
            self._metrics.set("notices_waiting", waiting[target], target=target)
            self._metrics.set("notice_target_failing", target in failing, target=target)

    def _submit(self, target: str, *, pauses: bool) -> None:
        running = self._running.get(target)
        others = self._others_until_s.get(target, 0) > time.monotonic()
        if (running is not None and not running.done()) or (pauses and others):
            return
        self._running[target] = self._threads.submit(self._tell_safely, target, pauses)

    def _tell_safely(self, target: str, pauses: bool) -> None:
        if pauses:
            self._try(target, lambda: self._tell(target, pauses=True))
        else:
            self._tell(target, pauses=False)

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            unexpected = not isinstance(error, PenstockError)
            log_line.warning("delivery failed", what=what, why=str(error), exc_info=unexpected)

    def _tell(self, target: str, *, pauses: bool) -> None:
        name = f"tell:{target}"
        with leased(self._database, name, self._owner, LEASE_SECONDS) as mine:
            if not mine:
                self._others_until_s[target] = time.monotonic() + LEASE_SECONDS / _LOOKS_A_LEASE
                return
            opened = self._open_target(target)
            if opened is None:
                return
            self._open[target] = opened
            try:
                # Looked at again: until the lease was taken another may have told it.
                for one in backlogs(self._database, self.topic_target, target=target):
                    if one.due or not pauses:
                        self._tell_channel(opened, one, name)
            finally:
                del self._open[target]

    def _open_target(self, target: str) -> NoticeTarget | None:
        if self._topic is not None and target == self.topic_target:
            return self._topic
        return open_webhook(self._database, webhook_id(target), WEBHOOK_SECONDS_MAX)

    def _tell_channel(self, opened: NoticeTarget, one: Backlog, lease_name: str) -> None:
        """All that there is, until it fails."""
        expected, kind = one.next_version, kind_of(one.target)
        while not self._stopping.is_set():
            notice = next_notice(self._database, one, expected, lease_name, self._owner)
            if notice is None:
                return
            failure = opened.send(notice)
            if failure is None:
                self._metrics.add("notices_told_total", kind=kind)
                if not mark_taken(self._database, one.target, notice, expected):
                    return
                expected = notice.version + 1
            elif not self._stopping.is_set():
                self._metrics.add("notice_failures_total", kind=kind)
                attempts = one.attempts + 1 if expected == one.next_version else 1
                pause = self._pause_s(attempts, failure)
                log_line.warning(
                    "a change was not told", target=one.target, channel=one.channel,
                    version=notice.version, why=failure.problem, again_in_s=round(pause, 1),
                )  # fmt: skip
                mark_failed(
                    self._database, one.target, notice, expected,
                    problem=failure.problem, pause_s=pause,
                )  # fmt: skip
                return

    def _pause_s(self, attempts: int, failure: DeliveryFailure) -> float:
        longest_s = PAUSE_SECONDS_MAX
        own = pause_s(attempts, longest_s, random.random(), gone=failure.gone)
        return max(own, min(failure.pause_s, longest_s))


def _changes_by_target(found: list[Backlog]) -> Counter[str]:
    waiting: Counter[str] = Counter()
    for one in found:
        waiting[one.target] += one.changes
    return waiting
