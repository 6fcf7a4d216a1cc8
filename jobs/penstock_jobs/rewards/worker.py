"""A bucket of sessions, from their events to a file of rewards: what runs on a worker."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import Bucket, SessionId, read_bucket
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock_jobs.rewards.collecting import uncollected
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.definition import Definition, parse_definition
from penstock_jobs.rewards.files import Span, outcome_table, reward_table, spans_of
from penstock_jobs.rewards.followups.opening import open_judge
from penstock_jobs.rewards.gathering import as_bucket, columns_of, later
from penstock_jobs.rewards.history import Repository, with_history
from penstock_jobs.rewards.keeping import Progress
from penstock_jobs.rewards.outcomes import Outcome
from penstock_jobs.rewards.rates import Tally
from penstock_jobs.rewards.reward_files import MadeBy, RewardFile, write_rewards
from penstock_jobs.rewards.rows import Parameters
from penstock_jobs.rewards.scoring import Scored, score


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
