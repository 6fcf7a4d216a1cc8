"""The garbage collector, while a bucket is computed."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import SystemClock
from penstock.execution import Executor
from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import Pin, pinned
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Parameters, as_bucket, later
from penstock_jobs.rewards.credit import Place, Scored, score
from penstock_jobs.rewards.definition import Definition, parse_definition
from penstock_jobs.rewards.followups.llm_judge import check_judge, open_judge
from penstock_jobs.rewards.git_history import Repository, with_history
from penstock_jobs.rewards.merging import merge_small
from penstock_jobs.rewards.outcomes import Outcome
from penstock_jobs.rewards.progress import (
    Plan,
    Progress,
    Wanted,
    begin_run,
    finish_run,
    plan_all,
    plan_backfill,
    plan_run,
    put_due,
)
from penstock_jobs.rewards.rates import Tally
from penstock_jobs.rewards.reward import columns_of
from penstock_jobs.rewards.reward_files import (
    OUTCOME_FILE_ROWS,
    REWARD_FILE_ROWS,
    MadeBy,
    RewardFile,
    add_rewards,
    write_rewards,
)
from penstock_jobs.rewards.settings import RewardSettings


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector. A bucket makes millions of small objects that stay until it is done,
    and no cycles to speak of: looking through them again and again costs a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Span(NamedTuple):
    """From when to when a session was heard of, in microseconds."""

    first_us: int
    last_us: int


def spans_of(rows: pa.Table) -> dict[SessionId, Span]:
    """Of the sessions of these events."""
    found = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min"), ("ts", "max")])
    sessions = (found[name].to_pylist() for name in ("tenant", "session_id"))
    times = (found[name].cast(pa.int64()).to_pylist() for name in ("ts_min", "ts_max"))
    return {
        SessionId(tenant, session): Span(first, last)
        for tenant, session, first, last in zip(*sessions, *times, strict=True)
    }


def reward_table(rewards: pa.Table, tenant: str, made_by: Progress) -> pa.Table:
    """From REWARD_ROWS."""
    added = {"due_at": rewards["due_us"], **_constants(tenant, made_by)}
    return _table(rewards.num_rows, REWARD_FILE_ROWS, added, rewards)


def outcome_table(
    found: Sequence[tuple[Outcome, Tally]],
    tenant: str,
    made_by: Progress,
    *,
    spans: Mapping[SessionId, Span],
    places: Mapping[SessionId, Place],
    due_us: Mapping[SessionId, int],
) -> pa.Table:
    """A row a session. It is due when any of its rewards is."""
    rows = [
        {
            "session_id": session.session_id,
            "outcome": outcome.kind,
            "reason": outcome.reason,
            "value": outcome.value,
            "checkpoint": outcome.checkpoint,
            "chain": places[session].chain if session in places else session.session_id,
            "first_ts": spans[session].first_us,
            "last_ts": spans[session].last_us,
            "turns": tally.turns,
            "edited_turns": tally.edited,
            "answered_turns": tally.answered,
            "asking_turns": tally.asked,
            "tool_calls": tally.calls,
            "invalid_tool_calls": tally.invalid_calls,
            "due_at": due_us.get(session),
        }
        for outcome, tally in found
        for session in [SessionId(tenant, outcome.session_id)]
    ]
    added = _constants(tenant, made_by)
    schema = pa.schema([one for one in OUTCOME_FILE_ROWS if one.name not in added])
    return _table(len(rows), OUTCOME_FILE_ROWS, added, pa.Table.from_pylist(rows, schema))


def _constants(tenant: str, made_by: Progress) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "definition": made_by.name,
        "definition_version": made_by.version,
        "computed_at": made_by.run_at,
    }


def _table(size: int, schema: pa.Schema, added: Mapping[str, Any], rows: pa.Table) -> pa.Table:
    columns = []
    for one in schema:
        column = added[one.name] if one.name in added else rows[one.name]
        if not isinstance(column, pa.ChunkedArray):
            column = pa.repeat(pa.scalar(column), size)
        columns.append(column.cast(one.type))
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Task:
    """A bucket as a worker gets it."""

    settings: Settings = field(repr=False)  # addresses may hold passwords
    progress: Progress = field(repr=False)
    bucket: Bucket
    #: Of those that are in a chain with others.
    places: Mapping[SessionId, Place] = field(repr=False)
    repository: Repository | None = None


class Count(NamedTuple):
    """Of rows of a reward: what they are about, their state and its reason."""

    name: str
    target_kind: str
    state: str
    reason: str | None


class Ending(NamedTuple):
    """How a session ended."""

    outcome: str
    reason: str | None


@dataclass(frozen=True)
class Computed:
    """What a worker found; its file is not committed yet. There is none where there is nothing."""

    file: RewardFile | None
    due_us: dict[SessionId, int]
    events: int
    rows: Counter[Count]
    endings: Counter[Ending]


def compute_bucket(task: Task) -> Computed:
    """Where it runs again, it writes another file. Raises what reading and rewards raise."""
    definition = parse_definition(task.progress.text, task.progress.name)
    with Lake(task.settings) as lake, uncollected():
        rows = read_bucket(lake, task.bucket)
        of_tenants = dict(_by_tenant(rows))
        scored = {
            tenant: _score(lake, task, definition, (tenant, some))
            for tenant, some in of_tenants.items()
        }
        due_us = _due(scored, later(rows, task.progress.run_at))
        file = _write(lake, task, scored, due_us=due_us, spans=spans_of(rows)) if scored else None
    tables = [one.rewards for one in scored.values()]
    endings = Counter(
        Ending(outcome.kind, outcome.reason)
        for one in scored.values()
        for outcome, _ in one.outcomes
    )
    return Computed(file, due_us, rows.num_rows, _count(tables), endings)


def _by_tenant(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for tenant in rows["tenant"].unique().to_pylist():
        yield tenant, rows.filter(pc.equal(rows["tenant"], tenant))


def _score(
    lake: Lake, task: Task, definition: Definition, of_tenant: tuple[str, pa.Table]
) -> Scored:
    tenant, rows = of_tenant
    run = f"{task.progress.version}-{task.progress.run_at}"
    columns = columns_of(term.reward for term in definition.terms)
    bucket = as_bucket(rows, tenant, task.progress.run_at, columns)
    bucket = replace(bucket, llm_judge=open_judge(lake.settings, lake.database, run))
    if task.repository is not None:
        bucket = with_history(bucket, task.repository, horizons_s=_horizons(definition))
    consents = {one.session_id: one.consent for one in task.bucket.consents if one.tenant == tenant}
    found = score(bucket, definition, places=_places(task, tenant), consents=consents)
    return replace(found, outcomes=[*found.outcomes, *_silent(rows, found)])


def _silent(rows: pa.Table, found: Scored) -> Iterator[tuple[Outcome, Tally]]:
    """Sessions with nothing but events that no rule looks at: they too end in some way."""
    told = {outcome.session_id for outcome, _ in found.outcomes}
    for session in rows["session_id"].unique().to_pylist():
        if session not in told:
            outcome = Outcome(session, "excluded", "no_agent")
            yield outcome, Tally(None, outcome.kind, outcome.reason)


def _horizons(definition: Definition) -> tuple[int, ...]:
    of_terms = [one.parameters for one in definition.terms]
    known = {
        horizon for one in of_terms if isinstance(one, Parameters) for horizon in one.horizons_s
    }
    return tuple(sorted(known))


def _places(task: Task, tenant: str) -> dict[str, Place]:
    return {one.session_id: at for one, at in task.places.items() if one.tenant == tenant}


def _due(
    scored: Mapping[str, Scored], first_later: Mapping[SessionId, int]
) -> dict[SessionId, int]:
    found = {
        SessionId(tenant, session): at
        for tenant, one in scored.items()
        for session, at in one.due_us.items()
    }
    for session, at in first_later.items():
        found[session] = min(found.get(session, at), at)
    return found


def _write(
    lake: Lake,
    task: Task,
    scored: Mapping[str, Scored],
    *,
    due_us: Mapping[SessionId, int],
    spans: Mapping[SessionId, Span],
) -> RewardFile:
    made_by = task.progress
    rewards = [reward_table(one.rewards, tenant, made_by) for tenant, one in scored.items()]
    outcomes = [
        outcome_table(one.outcomes, tenant, made_by, spans=spans, places=task.places, due_us=due_us)
        for tenant, one in scored.items()
    ]
    return write_rewards(
        lake.database,
        lake.store,
        MadeBy(made_by.version, task.bucket.snap),
        rewards=pa.concat_tables(rewards),
        outcomes=pa.concat_tables(outcomes),
    )


def _count(tables: list[pa.Table]) -> Counter[Count]:
    found: Counter[Count] = Counter()
    for table in tables:
        groups = table.group_by(list(Count._fields)).aggregate([([], "count_all")])
        columns = (groups[name].to_pylist() for name in (*Count._fields, "count_all"))
        for *key, count in zip(*columns, strict=True):
            found[Count(*key)] += count
    return found


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
