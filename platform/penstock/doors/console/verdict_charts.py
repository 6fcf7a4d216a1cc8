"""Charts of a verdict: each statistic as an interval against its margin."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from markupsafe import Markup

from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import count

Part = Mapping[str, Any]
_TONES = {"PASS": "good", "FAIL": "bad", "ERROR": "bad", "INCONCLUSIVE": "warn"}
_SHARES = ("max_increase", "max_decrease")
_ROLES = ("candidate", "incumbent")
_OTHER_PARTS = (
    ("live", "live traffic of the canary"),
    ("approval", "people who approve"),
    ("data", "training data"),
)


class DrawnPart(msgspec.Struct, frozen=True):
    name: str
    outcome: str
    why: str
    charts: list[Markup] = msgspec.field(default_factory=list)
    facts: list[tuple[str, str]] = msgspec.field(default_factory=list)


def drawn_parts(document: Part) -> list[DrawnPart]:
    parts = [_requirement(part) for part in document.get("requirements") or ()]
    parts += [_guard(part) for part in document.get("guards") or ()]
    for name, label in _OTHER_PARTS:
        if part := document.get(name):
            parts.append(DrawnPart(label, part["outcome"], part["why"]))
    return parts


def side_rows(document: Part) -> Iterator[Part]:
    for suite, facts in (document.get("suites") or {}).items():
        for role in _ROLES:
            if side := facts.get(role):
                place = {"suite": suite, "version": facts["version"], "role": role}
                unscored = len(side.get("unscored", ()))
                yield {**side, **place, "unscored": unscored, "tasks": facts["tasks"]}


def _requirement(part: Part) -> DrawnPart:
    tone, charts = _TONES.get(part["outcome"], ""), []
    if part.get("margin") is not None and "difference" in part:
        margin, bounds = -part["margin"], (part.get("lower"), part["difference"], part.get("upper"))
        note = f"margin {margin:g}"
        row = Interval("gain over the incumbent", *bounds, margin, tone, note)
        title = f"{part['metric']}: difference from the incumbent; right is better"
        charts.append(interval_chart([row], title=title, value_format=_decimals))
    own, name = part.get("own"), "maximum" if part["direction"] == "min" else "minimum"
    limit = part.get(name)
    if own and limit is not None:
        bounds, note = (own["lower"], own["mean"], own["upper"]), f"{name} {limit:g}"
        row = Interval("mean", *bounds, limit, tone, note)
        title = f"{part['metric']}: mean against the {name}"
        charts.append(interval_chart([row], title=title, value_format=_decimals))
    return _drawn(part, f"{part['metric']} on {part['suite']}", charts)


def _guard(part: Part) -> DrawnPart:
    relative, charts = part["kind"] in _SHARES, []
    form = _signed_share if relative else _decimals
    limit = form(part["limit"]) if relative else f"{part['limit']:g}"
    if part.get("value") is not None:
        label = "change for the worse" if relative else "mean"
        bounds = (part.get("lower"), part["value"], part.get("upper"))
        tone, note = _TONES.get(part["outcome"], ""), f"limit {limit}"
        row = Interval(label, *bounds, part["limit"], tone, note)
        title = f"guard on {part['metric']}: {label} against the limit"
        charts.append(interval_chart([row], title=title, value_format=form))
    return _drawn(part, f"guard on {part['metric']} of {part['suite']}", charts)


def _drawn(part: Part, name: str, charts: list[Markup]) -> DrawnPart:
    outcome = "no incumbent" if part.get("idle") else part["outcome"]
    return DrawnPart(name, outcome, part["why"], charts, list(_facts(part)))


def _facts(part: Part) -> Iterator[tuple[str, str]]:
    for role in _ROLES:
        if (mean := part.get(f"{role}_mean")) is not None:
            yield role, _decimals(mean)
    p_value = part.get("p", (part.get("own") or {}).get("p"))
    if p_value is not None:
        yield "p", f"{p_value:.3g}"
    yield "alpha", f"{part['alpha']:.3g}"
    if (tasks := part.get("tasks")) is not None:
        yield "tasks", count(tasks)


def _decimals(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _signed_share(value: float) -> str:
    return f"{100 * value:+.3g} %".replace("-", "−")
