"""Metrics of agents by which checkpoints are compared. A data point becomes an `x_metric`, whose
`name` is a live metric of docs/promote.md. Other metrics are named and left out."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_128_hexdigest

from penstock.ingest.otlp.events import EventReading
from penstock.ingest.otlp.records import DataPoint, Metric, Origin, text


class _Known(NamedTuple):
    """A metric under its own name. With an attribute only points with one of these values count;
    they say whether what was counted is a yes, if it is a choice."""

    name: str
    attribute: str = ""
    values: Mapping[str, bool | None] = {}


_KNOWN = {
    "copilot_chat.edit.survival.four_gram": _Known("reported_survival"),
    "copilot_chat.edit.survival.no_revert": _Known("reported_no_revert"),
    "copilot_chat.edit.acceptance.count": _Known(
        "reported_acceptance", "copilot_chat.edit.outcome", {"accepted": True, "rejected": False}
    ),
    "copilot_chat.user.feedback.count": _Known(
        "reported_votes", "rating", {"positive": True, "negative": False}
    ),
    "claude_code.code_edit_tool.decision": _Known(
        "reported_acceptance", "decision", {"accept": True, "reject": False}
    ),
    "claude_code.token.usage": _Known("reported_tokens", "type", {"output": None}),
    "claude_code.cost.usage": _Known("reported_cost_usd"),
    "cursor.token.usage": _Known("reported_tokens", "cursor.token.type", {"output": None}),
    "cursor.cost.usage": _Known("reported_cost_usd"),
    "cursor.tool.calls": _Known("reported_tool_calls"),
}
#: Of Claude Code's decisions, those with such a source are a person's.
_OF_PERSONS = "user_"


def is_known(metric: Metric) -> bool:
    return metric.name in _KNOWN


def read_point(metric: Metric, point: DataPoint) -> EventReading | None:
    """Read what a point says by which to compare. Returns None if nothing."""
    known = _KNOWN[metric.name]
    told = known.values.get(text(point.attributes, known.attribute) or "", ...)
    decided_by = text(point.attributes, "source")
    by_rule = bool(decided_by) and not str(decided_by).startswith(_OF_PERSONS)
    if by_rule or (known.attribute and told is ...) or not math.isfinite(point.total):
        return None
    total, count = point.total, float(point.count)
    if isinstance(told, bool):
        total, count = total * told, total
    # A cumulative series is told again and again: its newest point counts.
    since = point.start_ns if metric.is_cumulative else point.time_ns
    series = _digest(metric.name, since, sorted(point.attributes.items()))
    payload = {"name": known.name, "total": total, "count": count, "series": series,
               "metric": metric.name}  # fmt: skip
    return EventReading("x_metric", payload, f"metric:{series}:{total}:{count}")


def nameless_session(origin: Origin) -> str:
    """The session of metrics that name none: one for each sender."""
    return f"metrics:{_digest(sorted(origin.resource.items()))}"


def _digest(*what: Any) -> str:
    return xxh3_128_hexdigest(msgspec.json.encode(what))
