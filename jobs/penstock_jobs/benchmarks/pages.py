"""Pages of benchmarks: scores by suite, and two checkpoints compared task by task."""

from functools import partial

from penstock.core.endpoint import Request
from penstock.core.errors import PenstockError
from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import signed
from penstock.doors.console.page import Content, PageList, Visitor, page_sql
from penstock.doors.console.verdict_charts import frontier_chart
from penstock.registry.gate.frontier import FrontierPicture, FrontierPoint
from penstock_jobs.benchmarks.endpoints import (
    COMPARE_RESULTS,
    SHOW_RESULTS,
    ComparisonRequest,
    ResultsRequest,
)
from penstock_jobs.benchmarks.summary import CheckpointResults

PAGES = PageList("penstock_jobs.benchmarks:pages/", reads_rows=True)
_READERS = ("read", "promote")
_difference = partial(signed, digits=2)
#: Measures of cost. The first that all results have is drawn.
_COSTS = ("cost_usd", "completion_tokens", "latency_s")
_RESULTS_MAX = 40
_TASKS_DRAWN_MAX = 60


class SuiteUnknown(PenstockError, exit_status=2, http_status=404):
    """No checkpoint has results at a suite {suite!r}. Make some with `penstock bench run` or
    `penstock bench import`; the page Suites lists the suites with results."""


class SuitesRequest(Request):
    """All suites."""


class SuiteRequest(Request):
    suite: str
    cursor: str | None = None


@PAGES.page("/suites", "Suites", "suites.html.jinja", group="Release", place=2, shortcut="b")
def _suites(visitor: Visitor, _question: SuitesRequest) -> Content:
    sql = page_sql("penstock_jobs.benchmarks", "suites.sql")
    rows = visitor.own_rows(sql, frozenset({"benchmark_scores"}))
    return {"suites": rows}


@PAGES.page("/suites/{suite}", "Suite", "suite.html.jinja", roles=_READERS)
def _show(visitor: Visitor, request: SuiteRequest) -> Content:
    asked = ResultsRequest(suite=request.suite, cursor=request.cursor, limit=_RESULTS_MAX)
    answer = visitor.call(SHOW_RESULTS, asked)
    if not answer.results and request.cursor is None:
        raise SuiteUnknown(suite=request.suite)
    rows = [
        Interval(result.checkpoint, mean.lower, mean.mean, mean.upper, note=f"{mean.tasks} tasks")
        for result in answer.results
        if (mean := result.summary.score) is not None
    ]
    chart = interval_chart(
        rows,
        title=f"Scores at {request.suite}",
        description="Means over tasks with 95 % intervals.",
        value_format=lambda value: f"{value:.2f}",
    )
    return {"answer": answer, "chart": chart, "picture": _picture(request.suite, answer.results)}


def _picture(suite: str, results: list[CheckpointResults]) -> object:
    for name in _COSTS:
        points = [
            FrontierPoint(result.checkpoint, mean.mean, cost)
            for result in results
            if (mean := result.summary.score) is not None
            and (cost := getattr(result.summary, name)) is not None
        ]
        if len(points) < 2 or len(points) < len(results):
            continue
        return frontier_chart(FrontierPicture(suite, name, points, {}))
    return None


@PAGES.page("/suites/{suite}/comparison", "Comparison", "comparison.html.jinja", roles=_READERS)
def _compare(visitor: Visitor, request: ComparisonRequest) -> Content:
    compared = visitor.call(COMPARE_RESULTS, request)
    tasks = sorted(compared.tasks, key=lambda pair: (pair.difference, pair.task))
    differing = [pair for pair in tasks if pair.difference]
    half = _TASKS_DRAWN_MAX // 2
    drawn = differing
    if len(differing) > _TASKS_DRAWN_MAX:
        drawn = differing[:half] + differing[-half:]
    rows = [
        Interval(
            pair.task,
            min(pair.difference, 0.0),
            pair.difference,
            max(pair.difference, 0.0),
            tone="good" if pair.difference > 0 else "bad",
            note=f"{pair.before:.2f} → {pair.after:.2f}",
        )
        for pair in drawn
    ]
    chart = interval_chart(
        rows, title=f"Difference of {compared.after}, task by task", value_format=_difference
    )
    whole = []
    if compared.difference is not None:
        whole = [Interval("all tasks", compared.lower, compared.difference, compared.upper)]
    return {
        "compared": compared,
        "tasks": tasks,
        "better": sum(pair.difference > 0 for pair in tasks),
        "worse": sum(pair.difference < 0 for pair in tasks),
        "whole_chart": interval_chart(
            whole, title="Difference of the means, with a 95 % interval", value_format=_difference
        ),
        "chart": chart,
        "drawn": len(drawn),
        "differing": len(differing),
    }
