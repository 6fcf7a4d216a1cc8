"""The scores of a checkpoint at a suite, and the comparison of two checkpoints."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb, fsum
from operator import ge
from statistics import fmean
from typing import Any

import msgspec

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import (
    Attempt,
    BenchmarkRun,
    ErrorGroup,
    RecordedAttempt,
    attempts_of,
    checkpoints_tried,
    error_groups,
    listed,
    runs_of,
    versions_tried,
)
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.lineage import learned_of
from penstock.registry.checkpoints.registration import find_in
from penstock.registry.checkpoints.suites import SuiteTask, suite_versions, version_names
from penstock.registry.gate.statistics import Ranges, compare, estimate
from penstock_jobs.benchmarks.mine.proposals import proposals_of
from penstock_jobs.benchmarks.suite import VARIANT_MARK

_ALPHA = 0.025  # on each side of an interval
#: What an attempt costs.
COSTS = ("completion_tokens", "cost_usd", "latency_s")
_TASK_MEANS = ("score", "completion_tokens", "latency_s", "bits_per_byte")
_MEANS = (*_TASK_MEANS[1:], "prompt_tokens", "cost_usd", "steps", "edited", "asked")


@dataclass(frozen=True)
class TaskMean:
    """A mean over the means of tasks, with the gate's interval if there are several tasks."""

    mean: float
    lower: float | None
    upper: float | None
    tasks: int


@dataclass(frozen=True)
class TaskSummary:
    task: str
    tags: tuple[str, ...]
    scored: int
    errors: int
    score: float | None
    completion_tokens: float | None
    latency_s: float | None
    bits_per_byte: float | None
    #: Attempts without isolation, including errors.
    not_isolated: int


@dataclass(frozen=True)
class Summary:
    score: TaskMean | None
    #: Attempts with a score, and those that say nothing about the model.
    scored: int
    errors: int
    tasks_missing: tuple[str, ...]
    #: By k, over tasks with at least k attempts.
    pass_at: dict[int, TaskMean]
    best_of: dict[int, TaskMean]
    #: Means over attempts of what agents reported; None if none did.
    completion_tokens: float | None
    prompt_tokens: float | None
    cost_usd: float | None
    latency_s: float | None
    steps: float | None
    invalid_tool_calls: float | None
    edited: float | None
    asked: float | None
    bits_per_byte: float | None
    retries: int
    tags: dict[str, TaskMean]
    tasks: tuple[TaskSummary, ...]
    #: Number of scored attempts that reported each measure.
    reported: dict[str, int]
    error_groups: tuple[ErrorGroup, ...]


@dataclass(frozen=True)
class CheckpointResults:
    suite: str
    suite_version: str
    checkpoint: str
    summary: Summary
    runs: list[BenchmarkRun]
    #: Attempts without isolation. Unknown for imported ones.
    not_isolated: int
    #: The version that the gate uses, unless a policy names another.
    newest_version: str | None = None
    #: Whether no other result is at least as good in score and each cost, and better in one.
    on_frontier: bool | None = None
    #: Sessions that it learned from and that tasks were made from, with the task where it is known.
    seen: dict[str, str | None] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The checkpoint, and its variant if it has one."""
        variant = self.suite.partition(VARIANT_MARK)[2]
        return f"{self.checkpoint} ({variant})" if variant else self.checkpoint


def results_of(database: Database, scope: AttemptScope) -> CheckpointResults:
    versions = suite_versions(database, scope.tenant, scope.suite)
    newest = versions[-1].version if versions else None
    own = next((each for each in versions if each.version == scope.suite_version), None)
    made_from = own.content.sessions if own and own.content else ()
    with database.read() as connection:
        subject = find_in(connection, scope.tenant, scope.checkpoint) if made_from else None
        seen = learned_of(connection, subject, made_from) if subject else []
    mined = proposals_of(database, scope.tenant, scope.suite) if seen else []
    made = {each.session_id: each.task for each in mined}
    tasks = own.tasks if own else ()
    attempts = attempts_of(database, scope)
    sources = {recorded.run for recorded in attempts}
    runs = [run for run in runs_of(database, scope) if run.id in sources]
    not_isolated = _not_isolated(attempts, runs)
    summary = _summarise(tasks, [recorded.result for recorded in attempts], not_isolated)
    place = scope.suite, scope.suite_version, scope.checkpoint
    learned = {each: made.get(each) for each in seen}
    return CheckpointResults(*place, summary, runs, not_isolated.total(), newest, seen=learned)


def costs_of(results: Sequence[CheckpointResults]) -> list[str]:
    """The costs that agents reported at all scored attempts of all results."""
    summaries = [each.summary for each in results]
    return [name for name in COSTS if all(s.reported[name] == s.scored > 0 for s in summaries)]


def with_frontier(results: Sequence[CheckpointResults]) -> list[CheckpointResults]:
    """Mark the results that no other beats in score and costs."""
    scored = [each for each in results if each.summary.score is not None]
    costs = costs_of(scored)
    best = unbeaten([merits(each.summary, costs) for each in scored])
    marks = {id(each): mark for each, mark in zip(scored, best, strict=True)}
    return [replace(each, on_frontier=marks.get(id(each))) for each in results]


def tries_of(results: Sequence[CheckpointResults]) -> int:
    """The largest k whose best of k all results have."""
    return min((max(each.summary.best_of, default=1) for each in results), default=1)


def merits(summary: Summary, costs: Iterable[str]) -> list[float]:
    """The score and the costs, turned so that more is better."""
    score = summary.score.mean if summary.score else 0.0
    return [score, *(-getattr(summary, name) for name in costs)]


def unbeaten(rows: Sequence[list[float]]) -> list[bool]:
    """Whether no other row is at least as good everywhere, and better somewhere."""
    return [not any(other != own and all(map(ge, other, own)) for other in rows) for own in rows]


def version_advice(database: Database, tenant: str, suite: str) -> str | None:
    """Advice on scores at versions that no longer count. None if all checkpoints were tried at the
    newest version."""
    versions = version_names(database, tenant, suite)
    older: dict[str, list[str]] = {}
    for name in checkpoints_tried(database, tenant, suite) if len(versions) > 1 else ():
        tried = versions_tried(database, tenant, suite, name)
        if versions[-1] not in tried:
            older.setdefault(tried[-1], []).append(name)
    if not older:
        return None
    scores = "; ".join(f"{listed(names)} at {version}" for version, names in older.items())
    return (
        f"The newest version of {suite} is {versions[-1]}, which the gate uses. Not scored at it:"
        f" {scores}. Score them there too, or name the version that counts under [suites] of the"
        " policy."
    )


def _not_isolated(
    attempts: Iterable[RecordedAttempt], runs: Iterable[BenchmarkRun]
) -> Counter[str]:
    plain = {run.id for run in runs if run.conditions.get("isolated") is False}
    return Counter(recorded.result.task for recorded in attempts if recorded.run in plain)


def _summarise(
    tasks: Sequence[SuiteTask], attempts: Sequence[Attempt], not_isolated: Mapping[str, int]
) -> Summary:
    """Summarise attempts. If the suite's tasks are unknown (an import), the tried ones count."""
    tags = {task.name: task.tags for task in tasks} or {attempt.task: () for attempt in attempts}
    by_task: dict[str, list[Attempt]] = {name: [] for name in tags}
    for attempt in sorted(attempts, key=lambda attempt: attempt.attempt):
        by_task.setdefault(attempt.task, []).append(attempt)
    scored = [attempt for attempt in attempts if attempt.score is not None]
    scores = scores_by_task(attempt for of_task in by_task.values() for attempt in of_task)
    task_scores = {name: fmean(of_task) for name, of_task in scores.items()}
    most = max(map(len, scores.values()), default=0)
    ks = [2**power for power in range(12) if 2**power <= most]
    counts = [(attempt.invalid_tool_calls, attempt.tool_calls) for attempt in scored]
    invalid = sum(count or 0 for count, calls in counts if calls is not None)
    calls = sum(calls or 0 for count, calls in counts if count is not None)
    by_tag: dict[str, list[float]] = {}
    summaries = []
    for name, of_task in sorted(by_task.items()):
        task_tags = tuple(tags.get(name, ()))
        for tag in task_tags if name in scores else ():
            by_tag.setdefault(tag, []).append(task_scores[name])
        measured = [attempt for attempt in of_task if attempt.score is not None]
        means = {measure: _mean(measured, measure) for measure in _TASK_MEANS}
        errors = len(of_task) - len(measured)
        facts = means | {"not_isolated": not_isolated.get(name, 0)}
        summaries.append(TaskSummary(name, task_tags, len(measured), errors, **facts))
    return Summary(
        score=mean_of(list(task_scores.values())),
        scored=len(scored),
        errors=len(attempts) - len(scored),
        tasks_missing=tuple(name for name in by_task if name not in scores),
        pass_at=_means({k: [pass_at(k, of_task) for of_task in scores.values()] for k in ks}),
        best_of=_means({k: [best_of(k, of_task) for of_task in scores.values()] for k in ks}),
        **{name: _mean(scored, name) for name in _MEANS},
        invalid_tool_calls=invalid / calls if calls else None,
        retries=sum(attempt.retries for attempt in attempts),
        tags=_means({tag: by_tag[tag] for tag in sorted(by_tag)}),
        tasks=tuple(summaries),
        reported={
            name: sum(getattr(attempt, name) is not None for attempt in scored) for name in _MEANS
        },
        error_groups=error_groups(attempts),
    )


def mean_of(values: Sequence[float]) -> TaskMean | None:
    if not values:
        return None
    if len(values) == 1:
        return TaskMean(values[0], None, None, 1)
    import numpy as np

    interval = estimate(Ranges.of(np.array(values)), worst=0.0, best=1.0, limit=0.0, alpha=_ALPHA)
    lower, upper = max(interval.lower, 0.0), min(interval.upper, 1.0)
    return TaskMean(interval.mean, lower, upper, len(values))


def pass_at(k: int, scores: Sequence[float]) -> float | None:
    """The chance that one of k attempts passes (scores 1). None if there are fewer."""
    count, passed = len(scores), sum(score >= 1 for score in scores)
    if not 0 < k <= count:
        return None
    return 1 - comb(count - passed, k) / comb(count, k)


def best_of(k: int, scores: Sequence[float]) -> float | None:
    """The mean score of the best of k attempts. None if there are fewer."""
    count = len(scores)
    if not 0 < k <= count:
        return None
    # The i-th lowest score is the best of k if the others are among the i below it.
    ranked = enumerate(sorted(scores))
    return fsum(score * comb(below, k - 1) / comb(count, k) for below, score in ranked)


def _means(values: Mapping[Any, Iterable[float | None]]) -> dict[Any, TaskMean]:
    means = {}
    for key, of_key in values.items():
        if mean := mean_of([value for value in of_key if value is not None]):
            means[key] = mean
    return means


def _mean(rows: Sequence[object], name: str) -> Any:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return fsum(values) / len(values) if values else None


class TaskPair(msgspec.Struct, frozen=True):
    task: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


class CheckpointComparison(msgspec.Struct, frozen=True):
    suite: str
    version: str
    before: str
    after: str
    tasks: tuple[TaskPair, ...]
    #: The version that the first was scored at, if only the tasks that it shares are compared.
    before_version: str | None
    #: Tasks with a score of only one of the two.
    left_out: tuple[str, ...]
    before_mean: float | None
    after_mean: float | None
    #: After minus before; the interval needs two tasks.
    difference: float | None
    lower: float | None
    upper: float | None
    #: Attempts of each without isolation.
    not_isolated: tuple[int, int]


def compare_checkpoints(
    database: Database, tenant: str, suite: str, before: str, after: str
) -> CheckpointComparison:
    """Compare two checkpoints at the newest version that both tried, else at the tasks that their
    newest versions share. Raises InvalidInput if there are none."""
    tried = [versions_tried(database, tenant, suite, name) for name in (before, after)]
    both = [version for version in tried[1] if version in tried[0]]
    places = both[-1:] * 2 or [version for each in tried for version in each[-1:]]
    known_versions = {each.version: each for each in suite_versions(database, tenant, suite)}
    sides = [known_versions[place] for place in places if place in known_versions]
    shared = sides[0].shares(sides[1]) if len(sides) == 2 and not both else set()
    if not both and not shared:
        why = f"{before} and {after} have no results at a common version or task of {suite}"
        raise InvalidInput(what="The comparison", why=why)
    scopes = [
        AttemptScope(tenant, suite, place, name)
        for place, name in zip(places, (before, after), strict=True)
    ]
    attempts = [attempts_of(database, scope) for scope in scopes]
    old, new = (
        scores_by_task(each.result for each in known if both or each.result.task in shared)
        for known in attempts
    )
    tasks = sorted(old.keys() & new.keys())
    pairs = tuple(TaskPair(task, fmean(old[task]), fmean(new[task])) for task in tasks)
    plain = [
        _not_isolated(known, runs_of(database, scope)).total()
        for known, scope in zip(attempts, scopes, strict=True)
    ]
    result = compare(new, old, margin=0.0, alpha=_ALPHA) if len(pairs) > 1 else None
    return CheckpointComparison(
        suite=suite,
        version=places[1],
        before=before,
        after=after,
        tasks=pairs,
        before_version=None if both else places[0],
        left_out=tuple(sorted(old.keys() ^ new.keys())),
        before_mean=_mean(pairs, "before"),
        after_mean=_mean(pairs, "after"),
        difference=result.difference if result else None,
        lower=result.lower if result else None,
        upper=result.upper if result else None,
        not_isolated=(plain[0], plain[1]),
    )


def scores_by_task(attempts: Iterable[Attempt]) -> dict[str, list[float]]:
    """Scores by task. Errors are left out."""
    scores: dict[str, list[float]] = {}
    for attempt in attempts:
        if attempt.score is not None:
            scores.setdefault(attempt.task, []).append(attempt.score)
    return scores


# Tables for people


def summary_rows(summary: Summary) -> list[list[object]]:
    rows: list[list[object]] = [["score", mean_text(summary.score)]]
    rows += [[f"pass@{k}", mean_text(mean)] for k, mean in summary.pass_at.items()]
    rows += [[f"best of {k}", mean_text(mean)] for k, mean in summary.best_of.items() if k > 1]
    rows += [
        ["attempts scored", summary.scored],
        ["errors (say nothing about the model)", summary.errors],
        ["tasks without a score", len(summary.tasks_missing)],
        ["retries", summary.retries],
        ["completion tokens", _reported_text(summary, "completion_tokens")],
        ["prompt tokens", _reported_text(summary, "prompt_tokens")],
        ["cost, USD", _reported_text(summary, "cost_usd", ",.4f")],
        ["latency, s", _reported_text(summary, "latency_s", ",.1f")],
        ["steps", _reported_text(summary, "steps", ",.1f")],
        ["invalid tool calls", number_text(summary.invalid_tool_calls, ".1%")],
        ["edited", _reported_text(summary, "edited", ".1%")],
        ["asked", _reported_text(summary, "asked", ".1%")],
        ["bits per byte", _reported_text(summary, "bits_per_byte", ".4f")],
    ]
    # Tags with fewer tasks say too little.
    tags = [tag for tag, mean in summary.tags.items() if mean.tasks >= 5]
    return rows + [[f"score of {tag}", mean_text(summary.tags[tag])] for tag in tags]


def _reported_text(summary: Summary, name: str, form: str = ",.0f") -> str:
    text, count = number_text(getattr(summary, name), form), summary.reported[name]
    if 0 < count < summary.scored:
        text += f" (of {count} attempts; {summary.scored - count} did not report it)"
    return text


def result_table(results: Sequence[CheckpointResults]) -> tuple[list[str], list[list[object]]]:
    """The columns and rows of a table of checkpoints, with the best of as many attempts as all
    have."""
    most = tries_of(results)
    tries = [f"pass@{most}", f"best of {most}"] if most > 1 else []
    columns = ["checkpoint", "version", "score", *tries, "tokens", "cost, USD", "latency, s"]
    rows: list[list[object]] = []
    for each in results:
        summary, count = each.summary, each.not_isolated
        of_tries = [mean_text(means[most]) for means in (summary.pass_at, summary.best_of) if tries]
        costs = [number_text(summary.completion_tokens), number_text(summary.cost_usd, ".4f")]
        marks = [f"{count} NOT ISOLATED"] if count else []
        marks += ["an older version"] if each.suite_version != each.newest_version else []
        row = [each.label, each.suite_version[:19], mean_text(summary.score), *of_tries, *costs]
        counts = ["yes" if each.on_frontier else "", summary.scored, summary.errors]
        rows.append([*row, number_text(summary.latency_s, ",.1f"), *counts, ", ".join(marks)])
    return [*columns, "frontier", "scored", "errors", ""], rows


def task_table(results: CheckpointResults) -> tuple[list[str], list[list[object]]]:
    """The columns and rows of a table of tasks."""
    columns = ["task", "score", "scored", "errors", "tokens", "latency, s", "tags"]
    rows: list[list[object]] = []
    for task in results.summary.tasks:
        scores = [number_text(task.score, ".3f"), task.scored, task.errors]
        costs = [number_text(task.completion_tokens), number_text(task.latency_s, ",.1f")]
        rows.append([task.task, *scores, *costs, ", ".join(task.tags)])
        if results.not_isolated:
            rows[-1].append(task.not_isolated)
    return [*columns, *(["not isolated"] if results.not_isolated else [])], rows


def mean_text(mean: TaskMean | None) -> str:
    if mean is None:
        return "—"
    interval = "" if mean.lower is None else f" [{mean.lower:.3f}, {mean.upper:.3f}]"
    return f"{mean.mean:.3f}{interval} over {mean.tasks} tasks"


def number_text(value: float | None, form: str = ",.0f") -> str:
    return "—" if value is None else format(value, form)
