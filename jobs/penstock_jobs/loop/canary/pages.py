"""The page of a channel's canary: what is tried beside what, and the newest look at it."""

from collections.abc import Mapping
from typing import Any

from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.page import Content, PageList, Visitor
from penstock.doors.console.release_pages import DrawnPart
from penstock.registry.channels.endpoints import ChannelRequest
from penstock_jobs.loop.canary.look import SHOW_CANARY

PAGES = PageList("penstock_jobs.loop.canary:pages/")

_TONES = {"pass": "good", "breach": "bad", "error": "bad", "undecided": "warn"}
_ARMS = ("canary", "current")


@PAGES.page("/channels/{name}/canary", "Canary", "canary.html.jinja", roles=("read", "promote"))
def _show(visitor: Visitor, request: ChannelRequest) -> Content:
    answer = visitor.call(SHOW_CANARY, request)
    metrics = answer.look["metrics"] if answer.look else ()
    return {"answer": answer, "parts": [drawn_metric(metric) for metric in metrics]}


def drawn_metric(metric: Mapping[str, Any]) -> DrawnPart:
    is_ratio, less_is_better = metric["scale"] == "ratio", metric["direction"] == "min"
    charts = []
    if metric["difference"] is not None:
        margin = metric["margin"] if less_is_better else -metric["margin"]
        better = "to the left is better" if less_is_better else "to the right is better"
        row = Interval(
            "canary against current", metric["lower"], metric["difference"], metric["upper"],
            margin=margin, tone=_TONES[metric["outcome"]],
            note=f"margin {_change(margin, is_ratio)}",
        )  # fmt: skip
        title = f"{metric['metric']}: change, {better}"
        charts.append(
            interval_chart([row], title=title, value_format=lambda value: _change(value, is_ratio))
        )
    facts = []
    for name in ("means", "sessions", "pending", "unknown", "labels"):
        if values := metric.get(name):
            texts = ("–" if values[arm] is None else f"{values[arm]:.4g}" for arm in _ARMS)
            facts.append((name, " / ".join(texts)))
    return DrawnPart(metric["metric"], metric["outcome"], metric["why"], charts, facts)


def _change(value: float, is_ratio: bool) -> str:
    return f"{100 * value:+.3g} %" if is_ratio else f"{value:+.3g}"
