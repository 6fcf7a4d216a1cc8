"""Heavy jobs: a function over each bucket of sessions of the lake, each result kept once.

A bucket may be worked on more than once, at the same time too: a lost worker is replaced, a
killed job is started again, two are started by mistake. What counts is the row that is
committed for it: the first one wins, with all that its job changes in that transaction, and the
others change nothing.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import insert_new, now_us
from penstock.execution import Executor
from penstock.execution.calls import find_function, function_name
from penstock.lake.buckets import Bucket, digest_of, plan_buckets
from penstock.lake.catalog import Pin, pinned
from penstock.lake.errors import HistoryRemoved, JobResultUnfit
from penstock.lake.lake import Lake
from penstock.lake.tables import job as job_table
from penstock.lake.tables import job_result
from penstock.settings import Settings

#: The size of a result, for one bucket.
RESULT_BYTES_MAX = 64 * 1024

Parameters = Mapping[str, Any]
#: What a job does with a bucket: a function at the top of a module. Its result is plain JSON.
BucketFunction = Callable[[Lake, Bucket, Parameters], Any]
#: What else is stored with a result, in the same transaction.
ResultCommit = Callable[[Connection, Bucket, Any], None]


@dataclass(frozen=True)
class BucketJob:
    """`version` changes when the function's results would. `parameters` are plain JSON."""

    function: BucketFunction
    version: str
    parameters: Parameters = field(default_factory=dict)
    commit: ResultCommit | None = None


@dataclass(frozen=True)
class BucketJobReport:
    """What one run did; `read_results` gives what the job found."""

    id: str
    snap: int
    #: What the lake holds as of the snap.
    events: int
    buckets: int
    #: Buckets whose result this run committed, and that were there before or won meanwhile.
    committed: int
    there: int


@dataclass(frozen=True)
class BucketTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    function: str
    parameters: Parameters
    bucket: Bucket


def run_job(
    lake: Lake, executor: Executor, job: BucketJob, *, as_of: str | None = None, again: bool = False
) -> BucketJobReport:
    """Do what is not done of it yet. Without `as_of` that is the job's newest unfinished run,
    of whatever snap, else the lake as it is now. A finished job is not done again, unless
    `again`. Raises what the executor raises; what was committed before stays."""
    name = function_name(job.function)
    facts = msgspec.json.encode([name, job.version, job.parameters], order="deterministic")
    family = hashlib.sha256(facts).hexdigest()  # this job, over whatever snap
    with ExitStack() as claims:
        pin = _pin(claims, lake, family, as_of)
        buckets = plan_buckets(lake, pin)
        id_ = hashlib.sha256(f"{family}\0{pin.snap}\0{digest_of(buckets)}".encode()).hexdigest()
        finished = (job_table.c.id == id_, job_table.c.finished_at.is_not(None))
        with lake.database.write() as connection:
            if again and connection.execute(sa.delete(job_table).where(*finished)).rowcount:
                connection.execute(sa.delete(job_result).where(job_result.c.job == id_))
            row = {"id": id_, "family": family, "function": name, "snap": pin.snap}
            row |= {"buckets": len(buckets), "started_at": now_us()}
            insert_new(connection, job_table, row)
            done_before = sa.select(job_result.c.bucket).where(job_result.c.job == id_)
            there = set(connection.execute(done_before).scalars())
        tasks = (
            BucketTask(lake.settings, name, dict(job.parameters), bucket)
            for bucket in buckets
            if bucket.number not in there
        )
        committed = 0
        for done in executor.run(run_bucket, tasks):
            bucket, result = done.task.bucket, done.result
            row = {"job": id_, "bucket": bucket.number, "result": result}
            with lake.database.write() as connection:
                # Whether this result is the one that counts.
                won = insert_new(connection, job_result, {**row, "committed_at": now_us()})
                if won and job.commit is not None:
                    job.commit(connection, bucket, msgspec.json.decode(result))
            committed += won
        _finish(lake, id_, family)
    events = sum(segment.rows for segment in pin.segments)
    return BucketJobReport(id_, pin.snap, events, len(buckets), committed, len(buckets) - committed)


def run_bucket(task: BucketTask) -> bytes:
    """On a worker: the function's result as JSON. Raises JobResultUnfit."""
    with Lake(task.settings) as lake:
        value = find_function(task.function)(lake, task.bucket, task.parameters)
    facts = {"function": task.function, "bucket": task.bucket.number}
    try:
        result = msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise JobResultUnfit(**facts, why=str(error)) from None
    if len(result) > RESULT_BYTES_MAX:
        why = f"it has {len(result)} bytes, the limit is {RESULT_BYTES_MAX}"
        raise JobResultUnfit(**facts, why=why)
    return result


def read_results(lake: Lake, job: str) -> Iterator[Any]:
    """What a job found, in the order of its buckets; a few at a time are in memory."""
    query = sa.select(job_result.c.bucket, job_result.c.result).where(job_result.c.job == job)
    last: int | None = -1
    while last is not None:
        with lake.database.read() as connection:
            after = query.where(job_result.c.bucket > last).order_by(job_result.c.bucket)
            rows = connection.execute(after.limit(100)).all()
        for row in rows:
            yield msgspec.json.decode(row.result)
        last = rows[-1].bucket if rows else None


def _pin(claims: ExitStack, lake: Lake, family: str, as_of: str | None) -> Pin:
    if as_of is None:
        mine = (job_table.c.family == family, job_table.c.finished_at.is_(None))
        query = sa.select(job_table.c.snap).where(*mine).order_by(job_table.c.snap.desc())
        with lake.database.read() as connection:
            unfinished = connection.execute(query.limit(1)).scalar_one_or_none()
        if unfinished is not None:
            # Where nobody held its files, it starts afresh.
            with suppress(HistoryRemoved):
                return claims.enter_context(pinned(lake.database, unfinished, renewed=True))
    return claims.enter_context(pinned(lake.database, as_of, renewed=True))


def _finish(lake: Lake, id_: str, family: str) -> None:
    """Older runs of the same job give way to this one."""
    unfinished = (job_table.c.id == id_, job_table.c.finished_at.is_(None))
    snap = sa.select(job_table.c.snap).where(job_table.c.id == id_).scalar_subquery()
    older = sa.select(job_table.c.id).where(
        job_table.c.family == family, job_table.c.id != id_, job_table.c.snap <= snap
    )
    with lake.database.write() as connection:
        connection.execute(sa.update(job_table).where(*unfinished).values(finished_at=now_us()))
        connection.execute(sa.delete(job_result).where(job_result.c.job.in_(older)))
        gone = connection.execute(older).scalars().all()
        connection.execute(sa.delete(job_table).where(job_table.c.id.in_(gone)))
