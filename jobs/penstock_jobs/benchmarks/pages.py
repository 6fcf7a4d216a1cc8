"""Pages of benchmarks: scores by suite, and two checkpoints compared task by task."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from markupsafe import Markup
from msgspec import structs

from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput, PenstockError, one_line
from penstock.doors.console.charts import Dot, Interval, interval_chart, scatter_chart
from penstock.doors.console.figures import part, signed
from penstock.doors.console.page import Content, PageList, Redirect, Refusal, Visitor, page_sql
from penstock_jobs.benchmarks.endpoints import (
    COMPARE_RESULTS,
    SHOW_RESULTS,
    ComparisonRequest,
    ResultsRequest,
)
from penstock_jobs.benchmarks.mine.proposals import (
    JUDGE_PROPOSAL,
    LIST_PROPOSALS,
    SHOW_PROPOSAL,
    JudgementRequest,
    ProposalRequest,
    ProposalsRequest,
)
from penstock_jobs.benchmarks.summary import (
    CheckpointResults,
    TaskMean,
    costs_of,
    merits,
    tries_of,
    unbeaten,
)

PAGES = PageList("penstock_jobs.benchmarks:pages/", reads_rows=True)
_READERS = ("read", "promote")
_difference = partial(signed, digits=2)
_COST_NAMES = {
    "cost_usd": "dollars per attempt",
    "completion_tokens": "completion tokens per attempt",
    "latency_s": "seconds per attempt",
}
_RESULTS_MAX = 40
_TASKS_DRAWN_MAX = 60


class SuiteUnknown(PenstockError, exit_status=2, http_status=404):
    """No checkpoint has results at a suite {suite!r}. Make some with `penstock bench run` or
    `penstock bench import`; the page Suites lists the suites with results."""


@PAGES.page("/suites", "Suites", "suites.html.jinja", group="Release", place=2, shortcut="b")
def _suites(visitor: Visitor, _question: Request) -> Content:
    sql = page_sql("penstock_jobs.benchmarks", "suites.sql")
    rows = visitor.own_rows(sql, frozenset({"benchmark_scores"}))
    return {"suites": rows}


@PAGES.page("/suites/{suite}", "Suite", "suite.html.jinja", roles=_READERS)
def _show(visitor: Visitor, request: ResultsRequest) -> Content:
    answer = visitor.call(SHOW_RESULTS, structs.replace(request, limit=_RESULTS_MAX))
    if not answer.results and request.cursor is None:
        raise SuiteUnknown(suite=request.suite)
    scored = [result for result in answer.results if result.summary.score is not None]
    most = tries_of(scored)
    curves = [_curve(f"Scores at {request.suite}", [(r.label, r.summary.score) for r in scored])]
    if most > 1:
        best = [(result.label, result.summary.best_of[most]) for result in scored]
        curves.append(_curve(f"Best of {most} attempts", best))
    pictures = [_picture(request.suite, scored, name) for name in costs_of(scored)]
    return {"answer": answer, "curves": curves, "pictures": pictures if len(scored) > 1 else []}


def _curve(title: str, means: Sequence[tuple[str, TaskMean | None]]) -> Markup:
    rows = [
        Interval(label, mean.lower, mean.mean, mean.upper, note=f"{mean.tasks} tasks")
        for label, mean in means
        if mean is not None
    ]
    return interval_chart(
        rows,
        title=title,
        description="Means over tasks with 95 % intervals, the first checkpoint first.",
        value_format=lambda value: f"{value:.2f}",
    )


def _picture(suite: str, results: Sequence[CheckpointResults], cost: str) -> Markup:
    rows = [merits(result.summary, [cost]) for result in results]
    dots = [
        Dot(result.label, -negative, score, tone="s5", on_frontier=best)
        for result, (score, negative), best in zip(results, rows, unbeaten(rows), strict=True)
    ]
    return scatter_chart(
        dots,
        title=f"{suite}: score against cost",
        x_label=_COST_NAMES[cost],
        y_label="score",
        description="The line joins the checkpoints that no other beats in both score and cost.",
        y_format=lambda value: f"{value:.2f}",
    )


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


# Proposals of mined suites


class DecisionForm(Request):
    """A person's decision on a proposal, and its prompt as it stands in the form."""

    suite: str
    task: str
    decision: Literal["take", "refuse", "mend"]
    prompt: str = ""
    refuse: str = ""


@PAGES.page("/suites/{suite}/proposals", "Proposals", "proposals.html.jinja", roles=_READERS)
def _proposals(visitor: Visitor, request: ProposalsRequest) -> Content:
    return {"proposals": visitor.call(LIST_PROPOSALS, request).proposals}


@PAGES.page("/suites/{suite}/proposals/{task}", "Proposal", "proposal.html.jinja", roles=_READERS)
def _proposal(visitor: Visitor, request: ProposalRequest) -> Content:
    answer = visitor.call(SHOW_PROPOSAL, request)
    return {"answer": answer, "may_judge": visitor.may_call(JUDGE_PROPOSAL), "problem": ""}


@PAGES.form(
    "/suites/{suite}/proposals/{task}/judge", "Proposal", "proposal.html.jinja", roles=("promote",)
)
def _decide(visitor: Visitor, form: DecisionForm) -> Redirect | Refusal:
    place = ProposalRequest(suite=form.suite, task=form.task)
    order = JudgementRequest(
        suite=form.suite,
        task=form.task,
        take=form.decision == "take",
        refuse=form.refuse if form.decision == "refuse" else None,
        prompt=form.prompt.replace("\r", "").strip(),
    )
    try:
        visitor.call(JUDGE_PROPOSAL, order)
    except InvalidInput as error:
        problem = one_line(error)
        return Refusal({**_proposal(visitor, place), "problem": problem}, error.http_status)
    return Redirect(f"/suites/{part(form.suite)}/proposals", f"{form.task}: {form.decision}")
