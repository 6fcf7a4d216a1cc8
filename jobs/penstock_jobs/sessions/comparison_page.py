"""The page of two checkpoints: benchmark, production, costs and example sessions side by side."""

from functools import partial
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import signed
from penstock.doors.console.page import Content, PageList, Visitor, page_sql
from penstock_jobs.benchmarks.endpoints import COMPARE_RESULTS, ComparisonRequest
from penstock_jobs.benchmarks.summary import CheckpointComparison
from penstock_jobs.rewards.pages import RatesPage, rate_chart, shown_rates
from penstock_jobs.sessions.endpoints import LIST_SESSIONS
from penstock_jobs.sessions.session_page import ListedSession, SessionsRequest

PAGES = PageList("penstock_jobs.sessions:pages/", reads_rows=True)
_EXAMPLES = 5
_score = partial(signed, digits=2)


@PAGES.page(
    "/compared", "Compared", "compared.html.jinja", remembered=True, group="Release", place=3
)
def _compared(visitor: Visitor, asked: RatesPage) -> Content:
    *_, rates = shown_rates(visitor, asked)
    if rates is None or rates.before is None or rates.after is None:
        return {"rates": None}
    pair = (rates.before, rates.after)
    by_name = {each["checkpoint"]: each for each in rates.checkpoints}
    costs = visitor.own_rows(
        page_sql("penstock_jobs.sessions", "checkpoint_costs.sql"),
        frozenset({"sessions"}),
        {"before": pair[0], "after": pair[1]},
    )
    return {
        "rates": rates,
        "pair": pair,
        "names": [name for name in by_name if name],
        "suites": (suites := _suites(visitor, *pair)),
        "suite_chart": _suite_chart(suites),
        "rate_chart": rate_chart(rates),
        "worth": _worth(*(by_name[name]["means"] for name in pair)),
        "costs": {row["checkpoint"]: row for row in costs},
        "examples": [_examples(visitor, name, asked) for name in pair],
    }


def _suites(visitor: Visitor, before: str, after: str) -> list[CheckpointComparison]:
    """Compare at each suite that both have results of at common tasks."""
    sql = page_sql("penstock_jobs.benchmarks", "suites.sql")
    compared = []
    for row in visitor.own_rows(sql, frozenset({"benchmark_scores"})):
        question = ComparisonRequest(suite=row["suite"], before=before, after=after)
        try:
            compared.append(visitor.call(COMPARE_RESULTS, question))
        except InvalidInput:
            continue
    return [each for each in compared if each.tasks]


def _suite_chart(suites: list[CheckpointComparison]) -> object:
    rows = [
        Interval(
            each.suite, each.lower, each.difference, each.upper, note=f"{len(each.tasks)} tasks"
        )
        for each in suites
        if each.difference is not None
    ]
    about = "Differences of the means with 95 % intervals, and the number of tasks."
    return interval_chart(rows, title="Benchmark", description=about, value_format=_score)


def _worth(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Both means of each reward, at the longest horizon that both know."""
    sides = [
        {(mean["name"], mean["horizon_s"]): mean for mean in means} for means in (before, after)
    ]
    rows: dict[str, tuple[Any, ...]] = {}
    for key in sorted(sides[0].keys() & sides[1].keys(), key=lambda key: (key[0], key[1] or 0)):
        own, other = sides[0][key], sides[1][key]
        if own["value"] is not None and other["value"] is not None:
            rows[key[0]] = (*key, own, other)
    return list(rows.values())


def _examples(visitor: Visitor, checkpoint: str, asked: RatesPage) -> dict[str, Any]:
    """The least and the most worth of a checkpoint's sessions."""

    def listed(sort: Any) -> list[ListedSession]:
        chosen = SessionsRequest(
            checkpoint=checkpoint, since=asked.since, sort=sort, limit=_EXAMPLES
        )
        return visitor.call(LIST_SESSIONS, chosen).sessions

    return {"checkpoint": checkpoint, "worst": listed("worst"), "best": listed("best")}
