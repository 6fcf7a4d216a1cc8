"""Results of other harnesses into the registry: once, whole, and with what was wrong with them."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import msgspec
from sqlalchemy import Connection

from penstock.checkpoints.attempt import Attempt, AttemptScope
from penstock.checkpoints.registration import find
from penstock.checkpoints.scores import new_attempts, record_attempts
from penstock.checkpoints.suites import SuiteVersion, add_suite, suite_versions
from penstock.checkpoints.tables import benchmark_run
from penstock.database.engine import Database, now_us
from penstock.database.inserting import insert_of
from penstock.errors import InvalidInput
from penstock.settings import GIB, MIB, Settings
from penstock_jobs.benchmarks.importers import FORMATS, format_of, harbor, inspect_logs
from penstock_jobs.benchmarks.importers.found import Asked, Problems

#: One document, unpacked; what one archive holds, unpacked; attempts in one import.
_DOCUMENT_BYTES_MAX = 512 * MIB
_UNPACKED_BYTES_MAX = 64 * GIB
_ATTEMPTS_MAX = 1_000_000

#: The version of a suite of which nothing is known but results.
IMPORTED = "imported"
_WITH_METRICS = (inspect_logs.NAME, harbor.NAME)
_DIGEST = "sha256:"


@dataclass(frozen=True, kw_only=True)
class Wanted:
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
class Problem:
    kind: str
    count: int
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class Imported:
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
    problems: list[Problem]
    dry_run: bool


def import_results(
    database: Database, settings: Settings, path: Path, wanted: Wanted, *, dry_run: bool = False
) -> Imported:
    """Take all attempts, or none. Raises InvalidInput, CheckpointUnknown, AttemptConflict."""
    if not path.exists():
        raise InvalidInput(what=str(path), why="it does not exist")
    try:
        return _import(database, settings, path, wanted, dry_run=dry_run)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=str(error.filename or path), why=why) from error


def _import(
    database: Database, settings: Settings, path: Path, wanted: Wanted, *, dry_run: bool
) -> Imported:
    form = FORMATS[wanted.format] if wanted.format else format_of(path)
    if wanted.metric is not None and form.name not in _WITH_METRICS:
        why = f"results of the format {form.name} have one score"
        raise InvalidInput(what=f"--metric {wanted.metric!r}", why=why)
    checkpoint = find(database, wanted.tenant, wanted.checkpoint).name
    suite = _version_of(database, wanted)
    found = form.read(path, _asked(settings, wanted))
    attempts = [replace(one, attempt=one.attempt + wanted.first_attempt) for one in found.attempts]
    attempts = _of_suite(attempts, suite, found.problems)
    if not attempts:
        said = "; ".join(f"{kind} ({count})" for kind, count in found.problems.counts.items())
        why = f"there are no results in it that can be taken{': ' if said else ''}{said}"
        raise InvalidInput(what=str(path), why=why)
    place = AttemptScope(wanted.tenant, suite.suite, suite.version, checkpoint)
    problems = [
        Problem(kind, count, found.problems.examples[kind])
        for kind, count in sorted(found.problems.counts.items())
    ]
    run = _run_of(place, form.name, attempts)
    if dry_run:
        with database.read() as connection:
            new = len(new_attempts(connection, place, attempts))
    else:
        add_suite(database, wanted.tenant, suite)
        with database.write() as connection:
            new = len(record_attempts(connection, place, run, attempts))
            told = msgspec.json.encode(problems).decode()
            facts = {"kind": form.name, "source": str(path), "problems": told}
            _keep_run(connection, run, place, facts)
    return Imported(
        format=form.name,
        suite=suite.suite,
        suite_version=suite.version,
        checkpoint=checkpoint,
        run=run,
        attempts=len(attempts),
        new=new,
        scored=sum(1 for one in attempts if one.score is not None),
        errors=sum(1 for one in attempts if one.error is not None),
        tasks=len({one.task for one in attempts}),
        mean_score=_mean(attempts),
        problems=problems,
        dry_run=dry_run,
    )


def _asked(settings: Settings, wanted: Wanted) -> Asked:
    return Asked(
        metric=wanted.metric,
        only=wanted.only,
        unfinished=wanted.unfinished,
        document_bytes_max=_DOCUMENT_BYTES_MAX,
        unpacked_bytes_max=_UNPACKED_BYTES_MAX,
        attempts_max=_ATTEMPTS_MAX,
    )


def _version_of(database: Database, wanted: Wanted) -> SuiteVersion:
    """The version named, else the newest there is, else one of which nobody knows the tasks."""
    known = suite_versions(database, wanted.tenant, wanted.suite)
    if wanted.suite_version is None:
        return known[-1] if known else SuiteVersion(wanted.suite, IMPORTED, ())
    for one in known:
        if one.version == wanted.suite_version:
            return one
    if wanted.suite_version.startswith(_DIGEST):
        versions = ", ".join(one.version for one in known) or "none"
        why = f"it is the digest of no version known ({versions})"
        raise InvalidInput(what=f"The version {wanted.suite_version} of {wanted.suite}", why=why)
    return SuiteVersion(wanted.suite, wanted.suite_version, ())


def _of_suite(attempts: list[Attempt], suite: SuiteVersion, problems: Problems) -> list[Attempt]:
    if not suite.tasks:
        return attempts
    tasks = {one.name for one in suite.tasks}
    there = {one.task for one in attempts}
    for name in sorted(there - tasks):
        problems.note("a task that the suite does not have was left out", name)
    if there & tasks:
        for name in sorted(tasks - there):
            problems.note("a task of the suite has no result", name)
    return [one for one in attempts if one.task in tasks]


def _run_of(place: AttemptScope, form: str, attempts: Sequence[Attempt]) -> str:
    """The same results, wherever they lie, are one run."""
    facts = (asdict(place), form, attempts)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def _keep_run(
    connection: Connection, run: str, place: AttemptScope, facts: Mapping[str, str]
) -> None:
    connection.execute(
        insert_of(connection)(benchmark_run)
        .values(id=run, **asdict(place), **facts, started_at=now_us(), finished_at=now_us())
        .on_conflict_do_nothing()
    )


def _mean(attempts: Sequence[Attempt]) -> float | None:
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for one in attempts:
        if one.score is not None:
            by_task[one.task].append(one.score)
    return fmean(fmean(scores) for scores in by_task.values()) if by_task else None
