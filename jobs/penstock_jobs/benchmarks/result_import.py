"""Imports results of other harnesses into the registry: once, completely, with their problems."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from penstock.backends.database.engine import Database, clock_us
from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput
from penstock.core.toml_document import unknown
from penstock.registry.checkpoints.attempts import (
    Attempt,
    BenchmarkRun,
    RecordedAttempt,
    check_attempt,
    error_groups,
    error_kind,
    listed,
    new_attempts,
    read_attempts,
    record_attempts,
    record_run,
    result_values,
)
from penstock.registry.checkpoints.checkpoint import check_name
from penstock.registry.checkpoints.harness import Harness
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.registration import find
from penstock.registry.checkpoints.suites import SuiteVersion, add_suite, suite_versions
from penstock_jobs.benchmarks.importers import (
    harbor,
    inspect_logs,
    junit,
    penstock_jsonl,
    swe_bench,
)
from penstock_jobs.benchmarks.importers.trials import (
    ImportProblem,
    ImportProblems,
    ReadOptions,
    TrialCollection,
)
from penstock_jobs.benchmarks.summary import scores_by_task

_NUMBER_MAX = 2**31 - 1
#: Version of a suite that is known only by its results.
IMPORTED = "imported"
_WITH_METRICS = (inspect_logs.NAME, harbor.NAME)


#: Modules with `recognises` and `collect`.
FORMATS: dict[str, Any] = {
    module.NAME: module for module in (penstock_jsonl, inspect_logs, harbor, swe_bench, junit)
}


class ImportedError(msgspec.Struct, frozen=True):
    task: str
    attempt: int
    error: str
    where: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an import. `new` counts attempts that were unknown before; `mean_score` is the
    mean of the tasks' means."""

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
    failed: list[ImportedError]
    dry_run: bool


class ImportRequest(Request):
    """Attempts of a harness, as `penstock bench import` reads them.

    `format` names the harness, `source` the file or folder, and `places` the place of each
    attempt's result in it."""

    suite: str
    checkpoint: str
    format: str
    source: str
    attempts: list[Attempt]
    places: list[str]
    problems: list[ImportProblem] = []  # noqa: RUF012  # msgspec copies it
    suite_version: str | None = None
    harness: Harness | None = None
    first_attempt: Annotated[int, Meta(ge=0, le=_NUMBER_MAX)] = 0
    dry_run: bool = False


#: A task and a number.
Place = tuple[str, int]


class NumberedAttempts(NamedTuple):
    """Attempts with the numbers that they are kept under, by their places in the import; and the
    places of attempts that were known under another number."""

    attempts: Mapping[Place, Attempt]
    renamed: Sequence[Place]
    #: The run that has exactly these results, if nothing else identifies them.
    same_as_run: str | None


def take_results(database: Database, tenant: str, read: ImportRequest) -> ImportReport:
    """Import all attempts or none, numbered from `first_attempt` on. Raises InvalidInput,
    CheckpointUnknown, AttemptConflict."""
    suite, first, dry_run = read.suite, read.first_attempt, read.dry_run
    check_name("The name of a suite", suite)
    checkpoint = find(database, tenant, read.checkpoint).name
    version = _version_of(database, tenant, suite, read.suite_version)
    trials = ImportProblems(read.problems)
    places = _places_of(read)
    imported = _attempts_at(version, read, trials)
    scope = AttemptScope(tenant, suite, version.version, checkpoint)
    # Equal results are one run, whatever their file.
    results = [result_values(replace(each, attempt=each.attempt + first)) for each in imported]
    content = msgspec.json.encode((asdict(scope), read.format, results), order="sorted")
    run = hashlib.sha256(content).hexdigest()
    if not dry_run:
        add_suite(database, tenant, version)
    with database.read() if dry_run else database.write() as connection:
        numbered = number_attempts(imported, read_attempts(connection, scope), first)
        _note_known(trials, places, numbered)
        attempts, problems = list(numbered.attempts.values()), trials.sorted_problems
        if dry_run:
            new = new_attempts(connection, scope, attempts)
        elif new := record_attempts(connection, scope, run, attempts):
            now = clock_us(connection)
            told = {"harness": asdict(read.harness)} if read.harness else {}
            made = BenchmarkRun(run, read.format, read.source, told, problems, now, now)
            record_run(connection, scope, made)
    failed = [
        ImportedError(attempt.task, attempt.attempt, attempt.error, places[place])
        for place, attempt in numbered.attempts.items()
        if attempt.error is not None
    ]
    scores = scores_by_task(attempts)
    return ImportReport(
        format=read.format,
        suite=suite,
        suite_version=version.version,
        checkpoint=checkpoint,
        run=run,
        attempts=len(attempts),
        new=len(new),
        scored=sum(attempt.score is not None for attempt in attempts),
        errors=len(failed),
        failed=failed,
        tasks=len({attempt.task for attempt in attempts}),
        mean_score=fmean(map(fmean, scores.values())) if scores else None,
        problems=problems,
        dry_run=dry_run,
    )


def _note_known(
    trials: ImportProblems, places: Mapping[Place, str], numbered: NumberedAttempts
) -> None:
    kind = "a trial that is known under another number was not counted again"
    if numbered.same_as_run is not None:
        kind = (
            f"a result of the run {numbered.same_as_run} was not counted again: all results are"
            " the same; if they are of a further run, say so by a `trial` in each line"
        )
    for place in numbered.renamed:
        attempt = numbered.attempts[place]
        trials.note(kind, f"{places[place]}: it is attempt {attempt.attempt} at {attempt.task}")


def error_rows(report: ImportReport) -> list[list[object]]:
    first: dict[str, str] = {}
    for failed in report.failed:
        first.setdefault(error_kind(failed.error), failed.where)
    groups = error_groups(
        Attempt(task=each.task, attempt=each.attempt, error=each.error) for each in report.failed
    )
    return [[group.count, group.error, listed(group.tasks), first[group.error]] for group in groups]


def _version_of(database: Database, tenant: str, suite: str, name: str | None) -> SuiteVersion:
    versions = {version.version: version for version in suite_versions(database, tenant, suite)}
    if name is None:
        return list(versions.values())[-1] if versions else SuiteVersion(suite, IMPORTED, ())
    if name not in versions and name.startswith("sha256:"):
        why = f"no known version has this digest ({', '.join(versions) or 'none is known'})"
        raise InvalidInput(what=f"The version {name} of {suite}", why=why)
    return versions.get(name) or SuiteVersion(suite, check_name("The version", name), ())


def read_results(path: Path, name: str | None, options: ReadOptions, **whose: Any) -> ImportRequest:
    """Read the results of a file or folder, in the named format or the one recognised.

    Raises InvalidInput."""
    if not path.exists():
        raise InvalidInput(what=str(path), why="it does not exist")
    trials = TrialCollection(path, options)
    try:
        name = name or format_of(path)
        if options.metric is not None and name not in _WITH_METRICS:
            why = f"results of the format {name} have one score"
            raise InvalidInput(what=f"--metric {options.metric!r}", why=why)
        FORMATS[name].collect(trials)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=str(error.filename or path), why=why) from error
    attempts = trials.attempts()
    return ImportRequest(
        format=name,
        source=str(path),
        attempts=attempts,
        places=[trials.sources[attempt.place] for attempt in attempts],
        problems=trials.sorted_problems,
        harness=trials.harness,
        **whose,
    )


def _places_of(read: ImportRequest) -> dict[Place, str]:
    """The places of results, by attempt. Checks the request, which may come from elsewhere."""
    places: dict[Place, str] = {}
    for attempt, where in zip_longest(read.attempts, read.places):
        if attempt is None or where is None:
            raise InvalidInput(what="The import", why="it needs exactly one place per attempt")
        check_attempt(attempt)
        if attempt.place in places:
            what = f"Attempt {attempt.attempt} at the task {attempt.task!r}"
            raise InvalidInput(what=what, why="it occurs twice")
        places[attempt.place] = where
    if read.format not in FORMATS:
        raise InvalidInput(what=f"The format {read.format!r}", why=unknown(read.format, FORMATS))
    return places


def _attempts_at(suite: SuiteVersion, read: ImportRequest, trials: ImportProblems) -> list[Attempt]:
    attempts = read.attempts
    if tasks := {task.name for task in suite.tasks}:
        tried = {attempt.task for attempt in attempts}
        for task in sorted(tried - tasks):
            trials.note("a task that the suite does not have was left out", task)
        for task in sorted(tasks - tried) if tried & tasks else ():
            trials.note("a task of the suite has no result", task)
        attempts = [attempt for attempt in attempts if attempt.task in tasks]
    if not attempts:
        noted = [f"{problem.kind} ({problem.count})" for problem in trials.sorted_problems]
        why = f"it has no results to import{': ' * bool(noted)}{'; '.join(noted)}"
        raise InvalidInput(what=read.source, why=why)
    return attempts


def format_of(path: Path) -> str:
    """Recognise the format of a file or folder by its content. Raises InvalidInput."""
    names = [name for name, form in FORMATS.items() if form.recognises(path)]
    if len(names) == 1:
        return names[0]
    why = f"it has no results in a known format: {', '.join(FORMATS)}"
    if names:
        listing = ", ".join(names)
        why = f"it has results in several formats: {listing}; name one with --format, or a part"
    raise InvalidInput(what=f"The {'folder' if path.is_dir() else 'file'} {path}", why=why)


def number_attempts(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt], first: int
) -> NumberedAttempts:
    """Number the attempts. A known trial keeps its number, whatever the import says."""
    known, run = _known_numbers(attempts, recorded), None
    if not known:
        known, run = _numbers_of_run(attempts, recorded)
    trials = {each.result.place: each.result.trial for each in recorded}
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for task, number in trials:
        taken[task].add(number)
    numbers = dict(known)
    held = {(task, number) for (task, _), number in known.items()}
    for attempt in attempts:
        if attempt.place in known:
            continue
        number = attempt.attempt + first
        place = attempt.task, number
        other = attempt.trial and trials.get(place) and trials[place] != attempt.trial
        # Part of the import is known: a new attempt gives way to one that has its number.
        if known and (first or place in held or other):
            number = first or max(taken[attempt.task], default=-1) + 1
            while number in taken[attempt.task]:
                number += 1
        numbers[attempt.place] = number
        taken[attempt.task].add(number)
    kept = {each.place: replace(each, attempt=numbers[each.place]) for each in attempts}
    renamed = [place for place, number in known.items() if number != place[1] + first]
    return NumberedAttempts(kept, renamed, run)


def _known_numbers(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt]
) -> dict[Place, int]:
    """The numbers of known attempts, found by id or by unmistakable content."""
    results = [each.result for each in recorded]
    by_trial = {(each.task, each.trial): each for each in results if each.trial}
    by_content = {_content(each): each for each in results if _is_telling(each)}
    numbers = {}
    for attempt in attempts:
        alike = by_content.get(_content(attempt)) if _is_telling(attempt) else None
        if alike is not None and attempt.is_not(alike):
            alike = None
        if known := by_trial.get((attempt.task, attempt.trial or ""), alike):
            numbers[attempt.place] = known.attempt
    return numbers


def _numbers_of_run(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt]
) -> tuple[dict[Place, int], str | None]:
    """The numbers of a recorded run with exactly the same results, and the run."""
    has_ids = any(attempt.trial for attempt in attempts)
    ours = sorted(attempts, key=lambda each: repr(_content(each)))
    by_run: defaultdict[str, list[Attempt]] = defaultdict(list)
    for each in sorted(recorded, key=lambda each: repr(_content(each.result))):
        by_run[each.run].append(each.result)
    for run, theirs in by_run.items():
        if has_ids and any(result.trial for result in theirs):
            continue
        if list(map(_content, theirs)) == list(map(_content, ours)):
            pairs = zip(ours, theirs, strict=True)
            return {each.place: known.attempt for each, known in pairs}, run
    return {}, None


def _content(attempt: Attempt) -> tuple[object, ...]:
    return result_values(replace(attempt, attempt=0))


def _is_telling(attempt: Attempt) -> bool:
    """Whether the content identifies a trial: a duration in milliseconds, or in fractions of a
    second beside another measure, does not occur twice."""
    latency = attempt.latency_s
    if latency is None or latency == int(latency):
        return False
    measures = (attempt.completion_tokens, attempt.prompt_tokens, attempt.cost_usd, attempt.steps)
    return any(measures) or round(latency, 2) != latency
