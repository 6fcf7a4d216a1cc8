"""Verdicts and plans of the gate, for people, on standard output."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.gate.verdict import Verdict
from penstock.terminal.output import show_table, show_text, time_of

if TYPE_CHECKING:
    from penstock.gate.power import PowerPlan

_COLUMNS = [
    "require", "outcome", "candidate", "incumbent", "difference", "between", "asked", "p",
    "tasks × attempts",
]  # fmt: skip
_GUARD_COLUMNS = ["guard", "outcome", "candidate", "incumbent", "change", "between", "limit"]


def show_verdict(verdict: Verdict) -> None:
    """The outcome first, then why, then the numbers."""
    document = verdict.document
    incumbent = document.get("incumbent")
    against = f", after {incumbent['name']}" if incumbent else ", as its first checkpoint"
    lines = [f"{verdict.outcome}: {verdict.checkpoint} for {verdict.channel}{against}"]
    lines += [f"  {line}" for line in (*document.get("why", []), *document.get("notes", []))]
    show_text("\n".join(lines))
    if required := document.get("requirements"):
        show_text("")
        show_table(_COLUMNS, [_requirement_row(part) for part in required])
    if guarded := document.get("guards"):
        show_text("")
        show_table(_GUARD_COLUMNS, [_guard_row(part) for part in guarded])
    if live := document.get("live"):
        show_text(f"\nlive  {live['outcome']}: {live['why']}")
    show_text("\n".join(["", *_basis(verdict)]))


def _requirement_row(part: Mapping[str, Any]) -> list[str]:
    own = part.get("own") or {}
    p, tasks = part.get("p", own.get("p")), part.get("tasks")
    return [
        *_means(part),
        _signed(part.get("difference")),
        _interval(part, _signed),
        _demand(part, own),
        "" if p is None else f"{p:.3g}",
        "" if tasks is None else f"{tasks} × {_attempts(part.get('attempts_found') or {})}",
    ]


def _demand(part: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """What the policy demands, and for a limit what is shown."""
    lower_is_better = part.get("direction") == "min"
    limit = part.get("maximum" if lower_is_better else "minimum")
    demands = []
    if part.get("margin") is not None:
        demands.append(f"margin {part['margin']:g}")
    if limit is not None:
        bound = own.get("upper" if lower_is_better else "lower")
        shown = "" if bound is None else f" (shown: {_number(bound)})"
        demands.append(f"{'at most' if lower_is_better else 'at least'} {limit:g}{shown}")
    if part["alpha"] != part["alpha_asked"]:
        demands.append(f"alpha {part['alpha']:.3g}, corrected from {part['alpha_asked']:g}")
    elif part["alpha"] != 0.05:
        demands.append(f"alpha {part['alpha']:g}")
    return ", ".join(demands)


def _guard_row(part: Mapping[str, Any]) -> list[str]:
    relative = part["kind"] in {"max_increase", "max_decrease"}
    shown = _share if relative else _number
    slack = f" + {part['slack']:g}" if part.get("slack") else ""
    limit = f"{part['limit']:.0%}" if relative else f"{part['limit']:g}"
    change = [shown(part.get("value")), _interval(part, shown)]
    return [*_means(part), *change, f"{part['kind']} {limit}{slack}"]


def _means(part: Mapping[str, Any]) -> list[str]:
    means = [_number(part.get(f"{role}_mean")) for role in ("candidate", "incumbent")]
    return [f"{part['suite']} {part['metric']}", part["outcome"], *means]


def _basis(verdict: Verdict) -> list[str]:
    document = verdict.document
    lines = [f"verdict  {verdict.id}", f"policy   {document.get('policy') or '(none)'}"]
    for name, suite in (document.get("suites") or {}).items():
        lines.append(f"suite    {name} {suite['version']}")
        for side in (suite[role] for role in ("candidate", "incumbent") if suite.get(role)):
            attempts = f"{side['scored']} attempts of {side['checkpoint']}"
            attempts += f", {side['errors']} errors" if side["errors"] else ""
            attempts += f", {side['stale']} too old" if side["stale"] else ""
            lines.append(f"           {attempts}, {side['evidence']}")
    if at := document.get("at"):
        lines.append(f"at       {time_of(at):%Y-%m-%d %H:%M:%S} UTC, penstock {document['code']}")
    return lines


def _attempts(ranges: Mapping[str, list[int]]) -> str:
    counts = [f"{least}" if least == most else f"{least}–{most}" for least, most in ranges.values()]
    return " / ".join(counts[:1] if len(set(counts)) == 1 else counts)


def _interval(part: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    lower, upper = part.get("lower"), part.get("upper")
    return "" if lower is None or upper is None else f"{shown(lower)} … {shown(upper)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.4f}" if abs(value) < 10 else f"{value:+.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"


def show_plan(plan: "PowerPlan") -> None:
    better = "equal" if plan.difference == 0 else f"{plan.difference:+g} better"
    show_text(
        f"{plan.suite}: a margin of {plan.margin:g} at alpha {plan.alpha:g}, a candidate that"
        f" is {better}\n"
        f"  variance from {plan.source}\n"
        f"  at a task, one attempt of each: {plan.spread.within:.4g}; between tasks:"
        f" {plan.spread.between:.4g}\n"
    )
    margins = sorted({cell.margin for cell in plan.cells})
    rows: dict[tuple[int, int], list[str]] = {}
    for cell in plan.cells:
        rows.setdefault((cell.tasks, cell.attempts), []).append(f"{cell.power:.0%}")
    columns = ["tasks", "attempts", *(f"passes at {margin:g}" for margin in margins)]
    show_table(columns, [[*sizes, *powers] for sizes, powers in rows.items()])
    lines = [""]
    for need in plan.needs:
        count = "no number of tasks" if need.tasks is None else f"{need.tasks} tasks"
        lines.append(f"  for 80 % at {need.attempts} attempts: {count}")
    show_text("\n".join([*lines, ""]))
