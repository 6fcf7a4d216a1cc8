"""What checkpoints scored, as rows for people."""

from collections import Counter
from collections.abc import Sequence

from penstock.checkpoints.scores import BenchmarkRun
from penstock_jobs.benchmarks.comparing import Compared
from penstock_jobs.benchmarks.summarising import Mean, Summary

Row = list[object]

_TASKS_SHOWN = 10
#: The score of a tag with fewer tasks says nothing.
_TAG_TASKS_MIN = 5


def summary_rows(summary: Summary) -> list[Row]:
    rows: list[Row] = [["score", mean_text(summary.score)]]
    rows += [[f"pass@{k}", mean_text(mean)] for k, mean in summary.pass_at.items()]
    rows += [[f"best of {k}", mean_text(mean)] for k, mean in summary.best_of.items() if k > 1]
    rows += [
        ["attempts scored", summary.scored],
        ["errors (say nothing about the model)", summary.errors],
        ["tasks without a score", len(summary.tasks_missing)],
        ["tried again", summary.retries],
        ["completion tokens", _number(summary.completion_tokens, 0)],
        ["prompt tokens", _number(summary.prompt_tokens, 0)],
        ["cost, USD", _number(summary.cost_usd, 4)],
        ["latency, s", _number(summary.latency_s, 1)],
        ["steps", _number(summary.steps, 1)],
        ["invalid tool calls", _share(summary.invalid_tool_calls)],
        ["edited", _share(summary.edited)],
        ["asked", _share(summary.asked)],
    ]
    told = [(tag, mean) for tag, mean in summary.tags.items() if mean.tasks >= _TAG_TASKS_MIN]
    return rows + [[f"score of {tag}", mean_text(mean)] for tag, mean in told]


def task_rows(summary: Summary) -> list[Row]:
    return [
        [
            one.task, _number(one.score, 3), one.scored, one.errors,
            _number(one.completion_tokens, 0), _number(one.latency_s, 1), ", ".join(one.tags),
        ]
        for one in summary.tasks
    ]  # fmt: skip


def isolated(runs: Sequence[BenchmarkRun]) -> bool:
    """Of results that were imported nobody knows."""
    return all(one.conditions.get("isolated") is not False for one in runs)


def run_lines(runs: Sequence[BenchmarkRun]) -> list[str]:
    """What is to be known of how the results came to be."""
    lines = []
    if not isolated(runs):
        lines.append("NOT ISOLATED: agents of a run could see and do what its user can.")
    sources = {one.source for one in runs if one.kind == "run"}
    if len(sources) > 1:
        lines.append(f"{len(sources)} agents made these results: {'; '.join(sorted(sources))}")
    marks = Counter(
        str(problem["problem"])
        for one in runs
        if one.kind == "run"
        for problem in one.problems
        if isinstance(problem, dict) and "problem" in problem
    )
    return lines + [f"{count} × {mark}" for mark, count in sorted(marks.items())]


def compare_rows(found: Compared) -> list[Row]:
    rows: list[Row] = [
        ["tasks of both", len(found.tasks)],
        [f"score of {found.before}", _number(found.before_mean, 3)],
        [f"score of {found.after}", _number(found.after_mean, 3)],
    ]
    if found.difference is not None:
        between = f"[{found.lower:+.3f}, {found.upper:+.3f}]"
        rows.append(["difference, with 95 % of certainty", f"{found.difference:+.3f} {between}"])
    if found.left_out:
        rows.append(["tasks of one alone, left out", len(found.left_out)])
    return rows


def difference_rows(found: Compared) -> list[Row]:
    """The tasks that differ most."""
    differ = [one for one in found.tasks if one.difference]
    return [
        [one.task, _number(one.before, 3), _number(one.after, 3), f"{one.difference:+.3f}"]
        for one in sorted(differ, key=lambda one: (-abs(one.difference), one.task))[:_TASKS_SHOWN]
    ]


def mean_text(mean: Mean | None) -> str:
    if mean is None:
        return "—"
    between = "" if mean.lower is None else f" [{mean.lower:.3f}, {mean.upper:.3f}]"
    return f"{mean.mean:.3f}{between} over {mean.tasks} tasks"


def _number(value: float | None, digits: int) -> str:
    return "—" if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"
