"""What a verdict's document shows as charts: each interval against its margin."""

from typing import Any

from penstock.doors.console.release_pages import drawn_parts, side_rows

REQUIREMENT: dict[str, Any] = {
    "outcome": "FAIL", "why": "at least 0.21 worse; at most 0.02 is allowed", "suite": "core",
    "metric": "score", "direction": "max", "minimum": 0.4, "maximum": None, "margin": 0.02,
    "alpha": 0.05, "alpha_asked": 0.05, "candidate_mean": 0.5, "incumbent_mean": 0.75,
    "difference": -0.25, "lower": -0.3, "upper": -0.21, "p": 0.9, "tasks": 100,
    "own": {"mean": 0.5, "lower": 0.45, "upper": None, "p": 0.01},
}  # fmt: skip
GUARD: dict[str, Any] = {
    "outcome": "PASS", "why": "3.0% more; at most 10.0% more is allowed: it holds",
    "suite": "core", "metric": "completion_tokens", "kind": "max_increase", "limit": 0.1,
    "slack": 0.0, "alpha": 0.05, "alpha_asked": 0.05, "value": 0.03, "lower": 0.01, "upper": 0.05,
    "candidate_mean": 12_345.0, "incumbent_mean": 11_985.4, "p": 0.001, "tasks": 100,
}  # fmt: skip


def test_a_requirement_is_drawn_against_its_margin_and_its_minimum() -> None:
    [part] = drawn_parts({"requirements": [REQUIREMENT]})
    assert part.name == "score on core"
    difference, own = map(str, part.charts)
    assert "gain over the incumbent: from -0.3, value -0.25, to -0.21, margin -0.02" in difference
    assert 'class="interval bad"' in difference
    assert "mean: from 0.45, value 0.5, margin 0.4" in own  # its upper end may be anything
    assert 'class="interval' not in own
    assert ("candidate", "0.5") in part.facts
    assert ("p", "0.9") in part.facts


def test_a_relative_guard_is_drawn_as_shares() -> None:
    [part] = drawn_parts({"guards": [GUARD]})
    [chart] = map(str, part.charts)
    assert "from +1 %, value +3 %, to +5 %, margin +10 %" in chart
    assert ("candidate", "12,345") in part.facts


def test_what_is_not_measured_has_no_chart() -> None:
    kept = {"outcome", "why", "suite", "metric", "direction", "margin", "alpha", "alpha_asked"}
    gap = {name: value for name, value in REQUIREMENT.items() if name in kept}
    gap |= {"outcome": "INCONCLUSIVE", "why": "no results", "idle": True}
    [part] = drawn_parts({"requirements": [gap]})
    assert part.charts == []
    assert part.outcome == "no incumbent"
    assert drawn_parts({}) == []


def test_live_traffic_and_training_data_are_parts() -> None:
    live, data = (
        {"outcome": "INCONCLUSIVE", "why": "nobody has looked"},
        {"outcome": "FAIL", "why": "it learned from 2 sessions that were erased since"},
    )
    parts = drawn_parts({"live": live, "data": data})
    assert [part.outcome for part in parts] == ["INCONCLUSIVE", "FAIL"]


def test_hostile_names_are_text() -> None:
    [part] = drawn_parts({"requirements": [REQUIREMENT | {"metric": "<script>"}]})
    assert "<script>" not in str(part.charts[0])


def test_sides_are_listed_by_suite() -> None:
    side = {"checkpoint": "a", "scored": 8, "errors": 1, "stale": 0, "unscored": ["t1"]}
    suites = {"core": {"version": "v1", "tasks": 10, "candidate": side, "incumbent": None}}
    [row] = side_rows({"suites": suites})
    assert (row["role"], row["scored"], row["unscored"], row["tasks"]) == ("candidate", 8, 1, 10)
