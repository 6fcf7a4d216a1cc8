"""What a checkpoint scored at a suite, over all of its tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean
from typing import Any

from penstock.checkpoints.attempt import Attempt
from penstock.checkpoints.suites import SuiteTask
from penstock.gate.statistics import estimate
from penstock_jobs.benchmarks.passing import best_of, pass_at

#: On each side of an interval: 95 % of certainty.
_ALPHA = 0.025
#: For which k: 1, 2, 4 and so on, as far as there are attempts.
_KS_MAX = 12


@dataclass(frozen=True)
class Mean:
    """Over tasks, each the mean of its attempts. The interval is that of the gate
    (docs/gate.md); of one task nobody knows how tasks differ."""

    mean: float
    lower: float | None
    upper: float | None
    tasks: int


@dataclass(frozen=True)
class OfTask:
    task: str
    tags: tuple[str, ...]
    scored: int
    errors: int
    score: float | None
    completion_tokens: float | None
    latency_s: float | None


@dataclass(frozen=True)
class Summary:
    #: None where nothing was scored.
    score: Mean | None
    #: Attempts with a score, and those that say nothing about the model.
    scored: int
    errors: int
    #: Tasks of the suite without a score.
    tasks_missing: tuple[str, ...]
    #: By k, over the tasks that have so many attempts.
    pass_at: dict[int, Mean] = field(default_factory=dict)
    best_of: dict[int, Mean] = field(default_factory=dict)
    #: The mean over attempts of what agents report, and rates; None where nobody reported.
    completion_tokens: float | None = None
    prompt_tokens: float | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    steps: float | None = None
    invalid_tool_calls: float | None = None
    edited: float | None = None
    asked: float | None = None
    retries: int = 0
    tags: dict[str, Mean] = field(default_factory=dict)
    tasks: tuple[OfTask, ...] = ()


def summarise(tasks: Sequence[SuiteTask], attempts: Sequence[Attempt]) -> Summary:
    """Of an import nobody knows which tasks there should be: then those that were tried."""
    tags = {one.name: one.tags for one in tasks} or {one.task: () for one in attempts}
    by_task: dict[str, list[Attempt]] = {name: [] for name in tags}
    for one in attempts:
        by_task.setdefault(one.task, []).append(one)
    scores = {
        name: [one.score for one in sorted(found, key=_number) if one.score is not None]
        for name, found in by_task.items()
    }
    scored = [one for one in attempts if one.score is not None]
    most = max((len(found) for found in scores.values()), default=0)
    ks = [2**power for power in range(_KS_MAX) if 2**power <= most]
    calls = sum(one.tool_calls or 0 for one in scored if one.invalid_tool_calls is not None)
    invalid = sum(one.invalid_tool_calls or 0 for one in scored if one.tool_calls is not None)
    return Summary(
        score=mean_of([fmean(found) for found in scores.values() if found]),
        scored=len(scored),
        errors=sum(one.error is not None for one in attempts),
        tasks_missing=tuple(name for name, found in scores.items() if not found),
        pass_at=_by_k(ks, [[pass_at(k, found) for found in scores.values()] for k in ks]),
        best_of=_by_k(ks, [[best_of(k, found) for found in scores.values()] for k in ks]),
        **{name: _mean(scored, name) for name in _MEANS},
        invalid_tool_calls=invalid / calls if calls else None,
        retries=sum(one.retries for one in attempts),
        tags=_by_tag(tags, scores),
        tasks=tuple(_of_task(name, tags.get(name, ()), by_task[name]) for name in sorted(by_task)),
    )


_MEANS = (
    "completion_tokens", "prompt_tokens", "cost_usd", "latency_s", "steps", "edited", "asked",
)  # fmt: skip


def mean_of(values: Sequence[float]) -> Mean | None:
    if not values:
        return None
    if len(values) == 1:
        return Mean(values[0], None, None, 1)
    import numpy as np

    found = estimate(np.array(values), worst=0.0, best=1.0, limit=0.0, alpha=_ALPHA)
    return Mean(found.mean, max(found.lower, 0.0), min(found.upper, 1.0), len(values))


def _by_k(ks: Sequence[int], values: Sequence[Sequence[float | None]]) -> dict[int, Mean]:
    found = {
        k: mean_of([one for one in of_tasks if one is not None])
        for k, of_tasks in zip(ks, values, strict=True)
    }
    return {k: mean for k, mean in found.items() if mean is not None}


def _by_tag(
    tags: Mapping[str, Sequence[str]], scores: Mapping[str, Sequence[float]]
) -> dict[str, Mean]:
    names = sorted({tag for of_task in tags.values() for tag in of_task})
    found = {
        name: mean_of([fmean(s) for task, s in scores.items() if s and name in tags.get(task, ())])
        for name in names
    }
    return {name: mean for name, mean in found.items() if mean is not None}


def _mean(attempts: Sequence[Attempt], name: str) -> Any:
    values = [value for one in attempts if (value := getattr(one, name)) is not None]
    return fsum(values) / len(values) if values else None


def _of_task(name: str, tags: Sequence[str], attempts: Sequence[Attempt]) -> OfTask:
    scored = [one for one in attempts if one.score is not None]
    return OfTask(
        task=name,
        tags=tuple(tags),
        scored=len(scored),
        errors=len(attempts) - len(scored),
        score=_mean(scored, "score"),
        completion_tokens=_mean(scored, "completion_tokens"),
        latency_s=_mean(scored, "latency_s"),
    )


def _number(attempt: Attempt) -> int:
    return attempt.attempt
