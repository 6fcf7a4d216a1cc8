"""`penstock bench show | compare`: what checkpoints scored, as tables for people."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

if TYPE_CHECKING:
    from penstock_jobs.benchmarks.summary import CheckpointResults, TaskMean

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or its folder.")]

_VERSION_CHARS_SHOWN = 19
_TASKS_SHOWN = 10
#: The score of a tag with fewer tasks says nothing.
_TAG_TASKS_MIN = 5


def show(
    suite: SuiteName,
    *,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one, with its tasks.")
    ] = None,
    suite_version: Annotated[
        str | None, typer.Option(metavar="V", help="Else the newest of each checkpoint.")
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What checkpoints scored at a suite; of one checkpoint, what it scored at each task.

    Example: penstock bench show core --checkpoint ckpt-0013
    """
    from penstock.checkpoints.attempts import AttemptScope, checkpoints_tried, versions_tried
    from penstock_jobs.benchmarks.summary import results_of

    suite = _name_of(suite)
    with open_existing(data) as lake:
        names = [checkpoint] if checkpoint else checkpoints_tried(lake.database, tenant, suite)
        results = []
        for name in names:
            versions = versions_tried(lake.database, tenant, suite, name)[-1:]
            for version in [suite_version] if suite_version is not None else versions:
                scope = AttemptScope(tenant, suite, version, name)
                results.append(results_of(lake.database, scope))
    results = [result for result in results if result.summary.scored or result.summary.errors]
    if json:
        show_json(results)
        return
    if not results:
        say(f"No attempts at {suite} are known{f' of {checkpoint}' if checkpoint else ''}.")
    if checkpoint is None:
        rows: list[list[object]] = [
            [
                result.checkpoint, result.suite_version[:_VERSION_CHARS_SHOWN],
                _mean_text(result.summary.score), result.summary.scored, result.summary.errors,
                "" if result.isolated else "NOT ISOLATED",
            ]
            for result in results
        ]  # fmt: skip
        show_table(["checkpoint", "version", "score", "scored", "errors", ""], rows)
        return
    for result in results:
        show_summary(result)
        say("")
        rows = [
            [
                task.task, _number(task.score, ".3f"), task.scored, task.errors,
                _number(task.completion_tokens), _number(task.latency_s, ",.1f"),
                ", ".join(task.tags),
            ]
            for task in result.summary.tasks
        ]  # fmt: skip
        show_table(["task", "score", "scored", "errors", "tokens", "latency, s", "tags"], rows)


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The one to compare with it.")],
    *,
    suite: Annotated[str, typer.Option(metavar="SUITE", help="A suite's name, or its folder.")],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Two checkpoints at one suite, paired by task, and where they differ most.

    It is no verdict: `penstock gate check` decides by a channel's policy.

    Example: penstock bench compare ckpt-0012 ckpt-0013 --suite core
    """
    from penstock_jobs.benchmarks.summary import compare_checkpoints

    with open_existing(data) as lake:
        comparison = compare_checkpoints(lake.database, tenant, _name_of(suite), before, after)
    if json:
        show_json(asdict(comparison))
        return
    rows: list[list[object]] = [
        ["tasks of both", len(comparison.tasks)],
        [f"score of {before}", _number(comparison.before_mean, ".3f")],
        [f"score of {after}", _number(comparison.after_mean, ".3f")],
    ]
    if comparison.difference is not None:
        interval = f"[{comparison.lower:+.3f}, {comparison.upper:+.3f}]"
        difference = f"{comparison.difference:+.3f} {interval}"
        rows.append(["difference, with 95 % of certainty", difference])
    if comparison.left_out:
        rows.append(["tasks of one alone, left out", len(comparison.left_out)])
    show_table(["what", "value"], rows)
    pairs = [pair for pair in comparison.tasks if pair.difference]
    if pairs:
        pairs.sort(key=lambda pair: (-abs(pair.difference), pair.task))
        say("")
        rows = [
            [pair.task, f"{pair.before:.3f}", f"{pair.after:.3f}", f"{pair.difference:+.3f}"]
            for pair in pairs[:_TASKS_SHOWN]
        ]
        show_table(["task", before, after, "difference"], rows)


def _name_of(suite: str) -> str:
    if not (Path(suite) / "suite.toml").is_file():
        return suite
    from penstock_jobs.benchmarks.suite import read_suite

    return read_suite(Path(suite)).name


def show_summary(results: "CheckpointResults") -> None:
    summary = results.summary
    say(f"{results.checkpoint} at {results.suite} ({results.suite_version})")
    if not results.isolated:
        say("NOT ISOLATED: agents of a run could see and do what its user can.")
    runs = [run for run in results.runs if run.kind == "run"]
    sources = {run.source for run in runs}
    if len(sources) > 1:
        say(f"{len(sources)} agents made these results: {'; '.join(sorted(sources))}")
    marks = Counter(
        str(problem["problem"])
        for run in runs
        for problem in run.problems
        if isinstance(problem, dict) and "problem" in problem
    )
    for mark, count in sorted(marks.items()):
        say(f"{count} × {mark}")
    rows: list[list[object]] = [["score", _mean_text(summary.score)]]
    rows += [[f"pass@{k}", _mean_text(mean)] for k, mean in summary.pass_at.items()]
    rows += [[f"best of {k}", _mean_text(mean)] for k, mean in summary.best_of.items() if k > 1]
    rows += [
        ["attempts scored", summary.scored],
        ["errors (say nothing about the model)", summary.errors],
        ["tasks without a score", len(summary.tasks_missing)],
        ["tried again", summary.retries],
        ["completion tokens", _number(summary.completion_tokens)],
        ["prompt tokens", _number(summary.prompt_tokens)],
        ["cost, USD", _number(summary.cost_usd, ",.4f")],
        ["latency, s", _number(summary.latency_s, ",.1f")],
        ["steps", _number(summary.steps, ",.1f")],
        ["invalid tool calls", _number(summary.invalid_tool_calls, ".1%")],
        ["edited", _number(summary.edited, ".1%")],
        ["asked", _number(summary.asked, ".1%")],
    ]
    rows += [
        [f"score of {tag}", _mean_text(mean)]
        for tag, mean in summary.tags.items()
        if mean.tasks >= _TAG_TASKS_MIN
    ]
    show_table(["what", "value"], rows)


def _mean_text(mean: "TaskMean | None") -> str:
    if mean is None:
        return "—"
    interval = "" if mean.lower is None else f" [{mean.lower:.3f}, {mean.upper:.3f}]"
    return f"{mean.mean:.3f}{interval} over {mean.tasks} tasks"


def _number(value: float | None, form: str = ",.0f") -> str:
    return "—" if value is None else format(value, form)
