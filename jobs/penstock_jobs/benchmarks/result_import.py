"""Results of other harnesses into the registry: once, whole, and with what was wrong with them."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import msgspec
from sqlalchemy import Connection

from penstock.checkpoints.attempts import Attempt, AttemptScope, new_attempts, record_attempts
from penstock.checkpoints.registration import find
from penstock.checkpoints.suites import SuiteVersion, add_suite, suite_versions
from penstock.checkpoints.tables import benchmark_run
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput
from penstock.settings import GIB, MIB, Settings
from penstock_jobs.benchmarks.importers import FORMATS, format_of, harbor, inspect_logs
from penstock_jobs.benchmarks.importers.trials import ProblemCounts, ReadOptions

#: One document, unpacked; what one archive holds, unpacked; attempts in one import.
_DOCUMENT_BYTES_MAX = 512 * MIB
_UNPACKED_BYTES_MAX = 64 * GIB
_ATTEMPTS_MAX = 1_000_000

#: The version of a suite of which nothing is known but results.
IMPORTED = "imported"
_WITH_METRICS = (inspect_logs.NAME, harbor.NAME)
_DIGEST = "sha256:"


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """What is imported as whose. Further runs of the same are numbered on from `first_attempt`."""

    tenant: str
    suite: str
    checkpoint: str
    suite_version: str | None = None
    format: str | None = None
    metric: str | None = None
    only: str | None = None
    first_attempt: int = 0
    unfinished: bool = False


@dataclass(frozen=True)
class ImportProblem:
    kind: str
    count: int
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What was taken. `new` of the attempts were not known before. `mean_score` is the mean of
    the tasks' means."""

    format: str
    suite: str
    suite_version: str
    checkpoint: str
    run: str
    attempts: int
    new: int
    scored: int
    errors: int
    tasks: int
    mean_score: float | None
    problems: list[ImportProblem]
    dry_run: bool


def import_results(
    database: Database,
    settings: Settings,
    path: Path,
    request: ImportRequest,
    *,
    dry_run: bool = False,
) -> ImportReport:
    """Take all attempts, or none. Raises InvalidInput, CheckpointUnknown, AttemptConflict."""
    if not path.exists():
        raise InvalidInput(what=str(path), why="it does not exist")
    try:
        return _import(database, settings, path, request, dry_run=dry_run)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=str(error.filename or path), why=why) from error


def _import(
    database: Database, settings: Settings, path: Path, request: ImportRequest, *, dry_run: bool
) -> ImportReport:
    form = FORMATS[request.format] if request.format else format_of(path)
    if request.metric is not None and form.name not in _WITH_METRICS:
        why = f"results of the format {form.name} have one score"
        raise InvalidInput(what=f"--metric {request.metric!r}", why=why)
    checkpoint = find(database, request.tenant, request.checkpoint).name
    suite = _version_of(database, request)
    options = ReadOptions(
        metric=request.metric,
        only=request.only,
        unfinished=request.unfinished,
        document_bytes_max=_DOCUMENT_BYTES_MAX,
        unpacked_bytes_max=_UNPACKED_BYTES_MAX,
        attempts_max=_ATTEMPTS_MAX,
    )
    results = form.read(path, options)
    attempts = [
        replace(attempt, attempt=attempt.attempt + request.first_attempt)
        for attempt in results.attempts
    ]
    attempts = _of_suite(attempts, suite, results.problems)
    if not attempts:
        counts = "; ".join(f"{kind} ({count})" for kind, count in results.problems.counts.items())
        why = f"there are no results in it that can be taken{': ' if counts else ''}{counts}"
        raise InvalidInput(what=str(path), why=why)
    place = AttemptScope(request.tenant, suite.suite, suite.version, checkpoint)
    problems = [
        ImportProblem(kind, count, results.problems.examples[kind])
        for kind, count in sorted(results.problems.counts.items())
    ]
    run = _run_of(place, form.name, attempts)
    if dry_run:
        with database.read() as connection:
            new = len(new_attempts(connection, place, attempts))
    else:
        add_suite(database, request.tenant, suite)
        with database.write() as connection:
            new = len(record_attempts(connection, place, run, attempts))
            encoded = msgspec.json.encode(problems).decode()
            facts = {"kind": form.name, "source": str(path), "problems": encoded}
            _store_run(connection, run, place, facts)
    return ImportReport(
        format=form.name,
        suite=suite.suite,
        suite_version=suite.version,
        checkpoint=checkpoint,
        run=run,
        attempts=len(attempts),
        new=new,
        scored=sum(attempt.score is not None for attempt in attempts),
        errors=sum(attempt.error is not None for attempt in attempts),
        tasks=len({attempt.task for attempt in attempts}),
        mean_score=_mean(attempts),
        problems=problems,
        dry_run=dry_run,
    )


def _version_of(database: Database, request: ImportRequest) -> SuiteVersion:
    """The version named, else the newest there is, else one of which nobody knows the tasks."""
    known = suite_versions(database, request.tenant, request.suite)
    if request.suite_version is None:
        return known[-1] if known else SuiteVersion(request.suite, IMPORTED, ())
    for suite in known:
        if suite.version == request.suite_version:
            return suite
    if request.suite_version.startswith(_DIGEST):
        versions = ", ".join(suite.version for suite in known) or "none"
        why = f"it is the digest of no version known ({versions})"
        what = f"The version {request.suite_version} of {request.suite}"
        raise InvalidInput(what=what, why=why)
    return SuiteVersion(request.suite, request.suite_version, ())


def _of_suite(
    attempts: list[Attempt], suite: SuiteVersion, problems: ProblemCounts
) -> list[Attempt]:
    if not suite.tasks:
        return attempts
    tasks = {task.name for task in suite.tasks}
    tried = {attempt.task for attempt in attempts}
    for name in sorted(tried - tasks):
        problems.note("a task that the suite does not have was left out", name)
    if tried & tasks:
        for name in sorted(tasks - tried):
            problems.note("a task of the suite has no result", name)
    return [attempt for attempt in attempts if attempt.task in tasks]


def _run_of(place: AttemptScope, form: str, attempts: Sequence[Attempt]) -> str:
    """The same results, in whatever file, are one run."""
    facts = (asdict(place), form, attempts)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def _store_run(
    connection: Connection, run: str, place: AttemptScope, facts: Mapping[str, str]
) -> None:
    connection.execute(
        insert_of(connection)(benchmark_run)
        .values(id=run, **asdict(place), **facts, started_at=now_us(), finished_at=now_us())
        .on_conflict_do_nothing()
    )


def _mean(attempts: Sequence[Attempt]) -> float | None:
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        if attempt.score is not None:
            by_task[attempt.task].append(attempt.score)
    return fmean(fmean(scores) for scores in by_task.values()) if by_task else None
