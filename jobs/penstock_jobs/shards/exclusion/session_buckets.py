"""Reading what chosen sessions say, on workers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.execution import Executor
from penstock.lake.buckets import Bucket, SessionId, plan_sessions
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock_jobs.rewards.settings import reward_bucket_bytes

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class SessionBuckets:
    """The sessions of a tenant in the pinned lake, read through the executor."""

    lake: Lake
    executor: Executor
    pin: Pin
    tenant: str

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        sessions: Iterable[str],
        make_task: Callable[[Bucket], TaskT],
    ) -> Iterator[ResultT]:
        """The result of each bucket of sessions, in the order in which workers finish."""
        target = reward_bucket_bytes(self.lake.settings)
        alone = [(SessionId(self.tenant, session),) for session in sorted(sessions)]
        buckets = plan_sessions(self.lake, self.pin, alone, target)
        for done in self.executor.run(function, (make_task(bucket) for bucket in buckets)):
            yield done.result
