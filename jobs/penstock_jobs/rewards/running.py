"""A run of a definition over the lake: buckets on the executor, each result committed once.

What a bucket found is a file, committed together with when its sessions mature. A run that is cut
off leaves what it committed, and the next does only the rest. Two runs at once do some work twice
and harm nothing: of two computations of a session the one as of a later moment counts.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from penstock.clock import SystemClock
from penstock.execution import Executor
from penstock.lake.buckets import plan_sessions
from penstock.lake.catalog import Pin, pinned
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.opening import check_judge
from penstock_jobs.rewards.history import Repository
from penstock_jobs.rewards.keeping import Progress, begin_run, finish_run, put_due
from penstock_jobs.rewards.merging import merge_small
from penstock_jobs.rewards.planning import Plan, Wanted, plan_all, plan_backfill, plan_run
from penstock_jobs.rewards.reward_files import add_rewards
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.worker import Computed, Count, Ending, Task, compute_bucket


@dataclass
class Report:
    """What a run did."""

    definition: str
    version: str
    as_of_us: int
    #: How many there were to do, in all; and for what reason, besides those of their chains.
    sessions: int
    changed: int
    matured: int
    events: int = 0
    buckets: int = 0
    rows: Counter[Count] = field(default_factory=Counter)
    endings: Counter[Ending] = field(default_factory=Counter)


@dataclass(frozen=True)
class Work:
    """What a run is to do."""

    definition: Definition
    wanted: Wanted = field(default_factory=Wanted)
    #: Sessions that the definition has never computed, instead of those that changed or matured.
    backfill: bool = False
    #: Where later states of edited files are asked for, beside the lake.
    repository: Repository | None = None


#: Told of each bucket that is done, and how many sessions it was of how many.
Follow = Callable[[int, int], None]


def run(
    lake: Lake,
    executor: Executor,
    work: Work,
    *,
    now_us: int | None = None,
    follow: Follow = lambda _done, _of: None,
) -> Report:
    """Raises JudgeUnfit, InvalidInput, LakeDamaged, what the executor and the rewards raise; what
    was committed before stays."""
    check_judge(work.definition, lake.settings)
    definition = _with_repository(work)
    clock_us = SystemClock().now_us() if now_us is None else now_us
    with pinned(
        lake.database, None, lake.settings.room(LakeSettings).reader_lease_seconds, renewed=True
    ) as pin:
        progress = begin_run(lake.database, definition, clock_us)
        plan = _plan(lake, pin, progress, work)
        report = Report(
            definition.name,
            definition.version,
            progress.run_at,
            plan.sessions,
            plan.changed,
            plan.matured,
        )
        tasks = (
            Task(lake.settings, progress, bucket, plan.places_of(bucket), work.repository)
            for bucket in plan_sessions(
                lake,
                pin,
                plan.chains,
                lake.settings.room(RewardSettings).rewards_bucket_bytes_target,
            )
        )
        done = 0
        for one in executor.run(compute_bucket, tasks):
            commit(lake, one.task, one.result)
            _add(report, one.result)
            done += len(one.task.bucket.sessions or ())
            follow(done, plan.sessions)
        if not work.backfill:
            finish_run(lake.database, definition.version, pin.snap)
    merge_small(lake, definition.version)
    return report


def commit(lake: Lake, task: Task, computed: Computed) -> None:
    """One transaction. Raises FileLost."""
    sessions = task.bucket.sessions or ()
    with lake.database.write() as connection:
        version, run_at = task.progress.version, task.progress.run_at
        put_due(connection, version, run_at, sessions, computed.due_us)
        if computed.file is not None:
            add_rewards(connection, computed.file)  # the last: from here on other commits wait


def _plan(lake: Lake, pin: Pin, progress: Progress, work: Work) -> Plan:
    if work.backfill:
        return plan_backfill(lake, pin, progress.version, work.wanted)
    if work.repository is not None:
        return plan_all(lake, pin, work.wanted)
    return plan_run(lake, pin, progress, work.wanted)


def _with_repository(work: Work) -> Definition:
    """What commits tell is not in the lake, so it makes another version: numbers with it and
    without stand side by side."""
    definition, repository = work.definition, work.repository
    if repository is None:
        return definition
    facts = [definition.version, "git", repository.branch, str(repository.first_parent)]
    version = sha256("\0".join(facts).encode()).hexdigest()[: len(definition.version)]
    return replace(definition, name=f"{definition.name}+git", version=version)


def _add(report: Report, computed: Computed) -> None:
    report.events += computed.events
    report.buckets += 1
    report.rows += computed.rows
    report.endings += computed.endings
