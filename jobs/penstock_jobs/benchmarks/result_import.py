"""Imports results of other harnesses into the registry: once, whole, and with their problems."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from penstock.checkpoints.attempts import (
    RESULT_FIELDS,
    Attempt,
    AttemptScope,
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
from penstock.checkpoints.registration import find
from penstock.checkpoints.suites import SuiteVersion, add_suite, suite_versions
from penstock.database.engine import Database, clock_us
from penstock.errors import InvalidInput
from penstock.lake.desk import Question
from penstock.toml_document import unknown
from penstock_jobs.benchmarks.importers import (
    harbor,
    inspect_logs,
    junit,
    penstock_jsonl,
    swe_bench,
    terminal_bench,
)
from penstock_jobs.benchmarks.importers.trials import (
    ImportProblem,
    ImportProblems,
    ReadOptions,
    TrialCollection,
)
from penstock_jobs.benchmarks.summary import scores_by_task

_NUMBER_MAX = 2**31 - 1
#: The version of a suite of which only results are known.
IMPORTED = "imported"
_WITH_METRICS = (inspect_logs.NAME, harbor.NAME)


class ResultFormat(NamedTuple):
    name: str
    recognises: Callable[[Path], bool]
    collect: Callable[[TrialCollection], None]


FORMATS = {
    module.NAME: ResultFormat(module.NAME, module.recognises, module.collect)
    for module in (penstock_jsonl, inspect_logs, harbor, terminal_bench, swe_bench, junit)
}


@dataclass(frozen=True)
class ImportedError:
    task: str
    attempt: int
    error: str
    where: str


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """`new` of the attempts were not known before. `mean_score` is the mean of the tasks' means."""

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


class ImportQuestion(Question):
    """Attempts that a harness made, as `penstock bench import` reads them: `format` is its name,
    `source` where they were read, `places` where the result of each attempt stands there."""

    suite: str
    checkpoint: str
    format: str
    source: str
    attempts: list[Attempt]
    places: list[str]
    problems: list[ImportProblem] = []  # noqa: RUF012  # msgspec copies it
    suite_version: str | None = None
    first_attempt: Annotated[int, Meta(ge=0, le=_NUMBER_MAX)] = 0
    dry_run: bool = False


#: A task and a number.
Place = tuple[str, int]


@dataclass(frozen=True)
class NumberedAttempts:
    """By their places in the import: the attempts with the numbers that they are kept under, and
    those that are known under another number than the import gives them."""

    attempts: Mapping[Place, Attempt]
    renamed: Sequence[Place]
    #: The run whose results these are, one for one, where nothing but that tells.
    same_as_run: str | None = None


def take_results(database: Database, tenant: str, read: ImportQuestion) -> ImportReport:
    """Take all attempts, or none; they are numbered from `first_attempt` on. Raises InvalidInput,
    CheckpointUnknown, AttemptConflict."""
    suite, first_attempt, dry_run = read.suite, read.first_attempt, read.dry_run
    checkpoint = find(database, tenant, read.checkpoint).name
    version = _version_of(database, tenant, suite, read.suite_version)
    trials = ImportProblems.of(read.problems)
    places = _places_of(read)
    kind, imported = read.format, _attempts_at(version, read, trials)
    scope = AttemptScope(tenant, suite, version.version, checkpoint)
    # The same results, in whatever file, are one run.
    results = [_result_facts(each, each.attempt + first_attempt) for each in imported]
    content = msgspec.json.encode((asdict(scope), kind, results), order="sorted")
    run = hashlib.sha256(content).hexdigest()
    if not dry_run:
        add_suite(database, tenant, version)
    with database.read() if dry_run else database.write() as connection:
        recorded = read_attempts(connection, scope)
        numbered = number_attempts(imported, recorded, first_attempt)
        _note_known(trials, places, numbered)
        attempts, problems = list(numbered.attempts.values()), trials.sorted_problems
        if dry_run:
            new = new_attempts(connection, scope, attempts)
        elif new := record_attempts(connection, scope, run, attempts):
            now = clock_us(connection)
            made = BenchmarkRun(run, kind, read.source, {}, problems, now, now)
            record_run(connection, scope, made)
    failed = [
        ImportedError(attempt.task, attempt.attempt, attempt.error, places[place])
        for place, attempt in numbered.attempts.items()
        if attempt.error is not None
    ]
    scores = scores_by_task(attempts)
    return ImportReport(
        format=kind,
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


def _result_facts(attempt: Attempt, number: int) -> dict[str, Any]:
    return dict(zip(RESULT_FIELDS, result_values(replace(attempt, attempt=number)), strict=True))


def _note_known(
    trials: ImportProblems, places: Mapping[tuple[str, int], str], numbered: NumberedAttempts
) -> None:
    for place in numbered.renamed:
        attempt, where = numbered.attempts[place], places[place]
        if numbered.same_as_run is None:
            kind = "a trial that is known under another number was not counted again"
        else:
            kind = (
                f"a result of the run {numbered.same_as_run} was not counted again: all results are"
                " the same; if they are of a further run, say so by a `trial` in each line"
            )
        trials.note(kind, f"{where}: it is attempt {attempt.attempt} at {attempt.task}")


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
        why = f"it is the digest of no version known ({', '.join(versions) or 'none'})"
        raise InvalidInput(what=f"The version {name} of {suite}", why=why)
    return versions.get(name, SuiteVersion(suite, name, ()))


def read_results(
    path: Path, name: str | None, options: ReadOptions, **whose: Any
) -> ImportQuestion:
    """The results of a file or a folder, in the format of this name or the one that it looks like.
    Raises InvalidInput."""
    if not path.exists():
        raise InvalidInput(what=str(path), why="it does not exist")
    trials = TrialCollection(path, options)
    try:
        form = FORMATS[name] if name else format_of(path)
        if options.metric is not None and form.name not in _WITH_METRICS:
            why = f"results of the format {form.name} have one score"
            raise InvalidInput(what=f"--metric {options.metric!r}", why=why)
        form.collect(trials)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=str(error.filename or path), why=why) from error
    attempts = trials.attempts()
    return ImportQuestion(
        format=form.name,
        source=str(path),
        attempts=attempts,
        places=[trials.sources[attempt.place] for attempt in attempts],
        problems=trials.sorted_problems,
        **whose,
    )


def _places_of(read: ImportQuestion) -> dict[tuple[str, int], str]:
    """Where the result of each attempt stands. What was read elsewhere is checked here: raises
    InvalidInput."""
    places: dict[tuple[str, int], str] = {}
    for attempt, where in zip_longest(read.attempts, read.places):
        if attempt is None or where is None:
            raise InvalidInput(what="The import", why="each attempt has a place, and no other")
        check_attempt(attempt)
        if attempt.place in places:
            what = f"Attempt {attempt.attempt} at the task {attempt.task!r}"
            raise InvalidInput(what=what, why="it is there twice")
        places[attempt.place] = where
    if read.format not in FORMATS:
        raise InvalidInput(what=f"The format {read.format!r}", why=unknown(read.format, FORMATS))
    return places


def _attempts_at(
    suite: SuiteVersion, read: ImportQuestion, trials: ImportProblems
) -> list[Attempt]:
    attempts = read.attempts
    if tasks := {task.name for task in suite.tasks}:
        tried = {attempt.task for attempt in attempts}
        for task in sorted(tried - tasks):
            trials.note("a task that the suite does not have was left out", task)
        for task in sorted(tasks - tried) if tried & tasks else ():
            trials.note("a task of the suite has no result", task)
        attempts = [attempt for attempt in attempts if attempt.task in tasks]
    if not attempts:
        problems = trials.sorted_problems
        counts = "; ".join(f"{problem.kind} ({problem.count})" for problem in problems)
        why = f"there are no results in it that can be taken{': ' if counts else ''}{counts}"
        raise InvalidInput(what=read.source, why=why)
    return attempts


def format_of(path: Path) -> ResultFormat:
    """What a file or folder is, by its content. Raises InvalidInput."""
    fitting = [form for form in FORMATS.values() if form.recognises(path)]
    if len(fitting) == 1:
        return fitting[0]
    why = f"it holds results of no format known: {', '.join(FORMATS)}"
    if fitting:
        names = ", ".join(form.name for form in fitting)
        why = f"it holds results of several formats: {names}; name one with --format, or a part"
    raise InvalidInput(what=f"The {'folder' if path.is_dir() else 'file'} {path}", why=why)


# A trial that is known keeps its number, whatever the import calls it, and takes no second one


def number_attempts(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt], first: int
) -> NumberedAttempts:
    numbers, run = _known_numbers(attempts, recorded), None
    if not numbers:
        numbers, run = _numbers_of_run(attempts, recorded)
    trials = {each.result.place: each.result.trial for each in recorded}
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for task, number in trials:
        taken[task].add(number)
    known = dict(numbers)
    held = {(task, number) for (task, _), number in known.items()}
    for attempt in attempts:
        if attempt.place in known:
            continue
        number = attempt.attempt + first
        place = attempt.task, number
        other = attempt.trial and trials.get(place) and trials[place] != attempt.trial
        # Part of the import is known, so what is new in it makes way for what has its number.
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
    """By their ids, or by content that no two trials share."""
    by_trial = {(each.result.task, each.result.trial): each.result for each in recorded}
    by_content = {
        _content(each.result): each.result for each in recorded if _is_telling(each.result)
    }
    numbers = {}
    for attempt in attempts:
        known = by_trial.get((attempt.task, attempt.trial)) if attempt.trial else None
        if known is None and _is_telling(attempt):
            known = by_content.get(_content(attempt))
            if known is not None and known.trial and attempt.trial:
                known = None  # they say themselves that they are two
        if known is not None:
            numbers[attempt.place] = known.attempt
    return numbers


def _numbers_of_run(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt]
) -> tuple[dict[Place, int], str | None]:
    """The numbers of a run with the very same results, task for task, and the run."""
    has_ids = any(attempt.trial for attempt in attempts)
    wanted = Counter(map(_content, attempts))
    by_run: defaultdict[str, list[Attempt]] = defaultdict(list)
    for each in recorded:
        by_run[each.run].append(each.result)
    for run, results in by_run.items():
        if has_ids and any(result.trial for result in results):
            continue
        if Counter(map(_content, results)) == wanted:
            of_content: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
            for result in reversed(results):
                of_content[_content(result)].append(result.attempt)
            return {each.place: of_content[_content(each)].pop() for each in attempts}, run
    return {}, None


def _content(attempt: Attempt) -> tuple[object, ...]:
    return result_values(replace(attempt, attempt=0))


def _is_telling(attempt: Attempt) -> bool:
    """Whether no second trial has the same content: durations to a fraction of a second beside
    another measure, or to the millisecond, do not come twice."""
    latency = attempt.latency_s
    if latency is None or latency == int(latency):
        return False
    measures = (attempt.completion_tokens, attempt.prompt_tokens, attempt.cost_usd, attempt.steps)
    return any(measures) or round(latency, 2) != latency
