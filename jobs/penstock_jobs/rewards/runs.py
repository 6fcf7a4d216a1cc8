"""A run of a definition over the lake: buckets on the executor, each result committed once.

A worker reads a bucket of sessions, scores it and writes a file of rewards. The commit includes the
times when its sessions mature. Two simultaneous runs only do some work twice: the computation as of
the later moment counts.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.backends.execution.executor import Executor
from penstock.core.clock import SystemClock
from penstock.core.settings import Settings
from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock_jobs.rewards import due_sessions, reward_bucket_bytes
from penstock_jobs.rewards.bucket import Bucket as RewardBucket
from penstock_jobs.rewards.bucket import Relations, as_bucket, later
from penstock_jobs.rewards.definition import Definition, columns_of, parse_definition
from penstock_jobs.rewards.due_sessions import Progress, SessionFilter
from penstock_jobs.rewards.followups.labels import labels_of
from penstock_jobs.rewards.followups.llm_judge import check_judge, open_judge
from penstock_jobs.rewards.history.session_chains import relations_of, repeated, with_decisions
from penstock_jobs.rewards.outcomes import (
    Outcome,
    ScoredBucket,
    Tally,
    copy,
    no_agent,
    score_bucket,
)
from penstock_jobs.rewards.reward_files import RewardFile, add_rewards, merge_small, write_rewards
from penstock_jobs.rewards.rows import OUTCOME_FILE_ROWS, REWARD_FILE_ROWS, row_tuples


class RunRequest(msgspec.Struct, frozen=True):
    definition: Definition
    sessions: SessionFilter = msgspec.field(default_factory=SessionFilter)
    #: Compute sessions that were never computed, instead of those that changed or matured.
    backfill: bool = False


class RowGroup(NamedTuple):
    name: str
    target_kind: str
    state: str
    reason: str | None


class OutcomeGroup(NamedTuple):
    outcome: str
    reason: str | None


@dataclass
class RewardRunReport:
    definition: str
    version: str
    as_of_us: int
    #: All computed sessions: those that changed or matured, and the rest of their chains.
    sessions: int
    changed: int
    matured: int
    #: Changed sessions that are going on: computed once they rest.
    live: int
    events: int = 0
    buckets: int = 0
    rows: Counter[RowGroup] = field(default_factory=Counter)
    outcomes: Counter[OutcomeGroup] = field(default_factory=Counter)


def run(
    lake: Lake,
    executor: Executor,
    request: RunRequest,
    *,
    now_us: int | None = None,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
) -> RewardRunReport:
    """Run a definition. `follow` is called with the number of sessions done, and of all.

    Raises JudgeUnfit, InvalidInput, LakeDamaged, what the executor and the rewards raise."""
    check_judge(request.definition, lake.settings)
    clock_us = SystemClock().now_us() if now_us is None else now_us
    with pinned(lake.database, None, renewed=True) as pin:
        progress = due_sessions.begin_run(lake.database, request.definition, clock_us)
        plan = due_sessions.plan_run(
            lake, pin, progress, request.sessions, backfill=request.backfill
        )
        sessions = sum(map(len, plan.chains))
        report = RewardRunReport(
            *(progress.name, progress.version, progress.run_at, sessions),
            *(plan.changed, plan.matured, len(plan.live)),
        )
        size = reward_bucket_bytes(lake.settings)
        buckets = plan_sessions(lake, pin, plan.chains, size, repeated(plan.parents))
        tasks = (
            BucketTask(lake.settings, progress, bucket, relations)
            for bucket in buckets
            for relations in [relations_of(bucket, plan.places, plan.parents)]
        )
        done = 0
        for finished in executor.run(compute_bucket, tasks):
            task, result = finished.task, finished.result
            commit(lake, task, result)
            report.events += result.events
            report.buckets += 1
            report.rows += result.rows
            report.outcomes += result.outcomes
            done += len(task.sessions)
            follow(done, sessions)
        if not request.backfill:
            with lake.database.write() as connection:
                due_sessions.put_due(connection, progress, plan.live, plan.live)
            due_sessions.finish_run(lake.database, progress.version, pin.snap, plan.decision)
    merge_small(lake, progress.version)
    return report


def commit(lake: Lake, task: "BucketTask", result: "BucketResult") -> None:
    with lake.database.write() as connection:
        due_sessions.put_due(connection, task.progress, task.sessions, result.due_us)
        # Last, since other commits wait from here on.
        if result.file is not None:
            add_rewards(connection, result.file)


@dataclass(frozen=True)
class BucketTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    progress: Progress = field(repr=False)
    bucket: Bucket
    relations: Relations = field(repr=False)

    @property
    def tenant(self) -> str:
        return (self.bucket.sessions or ())[0].tenant

    @property
    def sessions(self) -> list[SessionId]:
        return [key for key in self.bucket.sessions or () if key not in self.bucket.beside]


class BucketResult(msgspec.Struct, frozen=True):
    file: RewardFile | None = None
    due_us: dict[SessionId, int] = msgspec.field(default_factory=dict)
    events: int = 0
    rows: Counter[RowGroup] = msgspec.field(default_factory=Counter)
    outcomes: Counter[OutcomeGroup] = msgspec.field(default_factory=Counter)


def compute_bucket(task: BucketTask) -> BucketResult:
    """Score a bucket on a worker. A second attempt writes another file.

    Raises what reading and rewards raise."""
    definition = parse_definition(task.progress.text, task.progress.name)
    with Lake(task.settings) as lake, without_garbage_collection():
        # Give back the memory of the previous bucket.
        pa.default_memory_pool().release_unused()
        events = read_bucket(lake, task.bucket)
        # Reading needs several times the memory of its result.
        pa.default_memory_pool().release_unused()
        moments = events.select(["tenant", "session_id", "ts"])
        if not moments.num_rows:
            return BucketResult()
        bucket = _reward_bucket(lake, task, definition, events)
        del events  # the bucket holds the needed parts of payloads
        scored = _score(task, definition, moments["session_id"].unique().to_pylist(), bucket)
        due_us = {SessionId(task.tenant, session): due for session, due in scored.due_us.items()}
        for key, moment in later(moments, task.progress.run_at).items():
            if key not in task.bucket.beside:
                due_us[key] = min(due_us.get(key, moment), moment)
        file = _write(lake, task, scored, moments, due_us)
    outcomes = Counter(OutcomeGroup(outcome.kind, outcome.reason) for outcome, _ in scored.outcomes)
    groups = scored.rewards.group_by(list(RowGroup._fields)).aggregate([([], "count_all")])
    counts = row_tuples(groups, *RowGroup._fields, "count_all")
    rows = Counter({RowGroup(*kind): count for *kind, count in counts})
    return BucketResult(file, due_us, moments.num_rows, rows, outcomes)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector: a bucket or a slice makes millions of objects and hardly a cycle.

    Collecting took a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _reward_bucket(
    lake: Lake, task: BucketTask, definition: Definition, events: pa.Table
) -> RewardBucket:
    tenant = task.tenant
    events = with_decisions(lake, tenant, events)
    columns = columns_of(term.reward for term in definition.terms)
    bucket = as_bucket(events, tenant, task.progress.run_at, columns, task.relations)
    run_name = f"{task.progress.version}-{task.progress.run_at}"
    return replace(
        bucket,
        llm_judge=open_judge(lake.settings, lake.database, run_name),
        labels=labels_of(lake.database, tenant, events["session_id"].unique().to_pylist()),
    )


def _score(
    task: BucketTask, definition: Definition, sessions: Sequence[str], bucket: RewardBucket
) -> ScoredBucket:
    consents = {session: consent for (_, session), consent in task.bucket.consents}
    scored = score_bucket(bucket, definition, consents)
    # Sessions without any event of their own have an outcome too.
    decided = {outcome.session_id for outcome, _ in scored.outcomes}
    decided |= {session.session_id for session in task.bucket.beside}
    for session in sessions:
        if session not in decided:
            rule = copy if session in bucket.repeating else no_agent
            outcome = Outcome(session, "excluded", rule.__name__)
            scored.outcomes.append((outcome, Tally(None, outcome.kind, outcome.reason)))
    return scored


def _write(
    lake: Lake,
    task: BucketTask,
    scored: ScoredBucket,
    moments: pa.Table,
    due_us: Mapping[SessionId, int],
) -> RewardFile:
    spans = moments.group_by("session_id").aggregate([("ts", "min"), ("ts", "max")])
    session_spans = {
        session: {"first_ts": first, "last_ts": last}
        for session, first, last in row_tuples(spans, "session_id", "ts_min", "ts_max")
    }
    names = ["due_at" if name == "due_us" else name for name in scored.rewards.column_names]
    own_rewards = scored.rewards.rename_columns(names)
    rows = []
    for outcome, tally in scored.outcomes:
        session, chains = outcome.session_id, task.relations.chains
        row = {
            "session_id": session,
            "value": outcome.value,
            "chain": chains[session].chain if session in chains else session,
            "due_at": due_us.get(SessionId(task.tenant, session)),
            "listed": task.progress.listed,
        }
        rows.append(tally._asdict() | session_spans[session] | row)
    own = [column for column in OUTCOME_FILE_ROWS if column.name not in _COMMON_COLUMNS]
    table = pa.Table.from_pylist(rows, pa.schema(own))
    return write_rewards(
        lake,
        task.progress.version,
        task.bucket.snap,
        task.tenant,
        rewards=_stored(own_rewards, REWARD_FILE_ROWS, task),
        outcomes=_stored(table, OUTCOME_FILE_ROWS, task),
    )


_COMMON_COLUMNS = ("tenant", "definition", "definition_version", "computed_at")


def _stored(rows: pa.Table, schema: pa.Schema, task: BucketTask) -> pa.Table:
    progress = task.progress
    values = (task.tenant, progress.name, progress.version, progress.run_at)
    for name, value in zip(_COMMON_COLUMNS, values, strict=True):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows.select(schema.names)
