"""Verdicts of the gate, for people."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.gate.verdict import Verdict
from penstock.terminal.output import show_table, time_of


def show_verdict(verdict: Verdict) -> None:
    """The outcome first, then why, and the numbers, on standard output."""
    document = verdict.document
    incumbent = document.get("incumbent")
    against = f", after {incumbent['name']}" if incumbent else ", as its first checkpoint"
    lines = [f"{verdict.outcome}: {verdict.checkpoint} for {verdict.channel}{against}"]
    lines += [f"  {one}" for one in document.get("why", [])]
    lines += [f"  {one}" for one in document.get("notes", [])]
    show_text(lines)
    if document.get("requirements"):
        show_text([""])
        show_table(_COLUMNS, [_requirement(one) for one in document["requirements"]])
    if document.get("guards"):
        show_text([""])
        show_table(_GUARD_COLUMNS, [_guard(one) for one in document["guards"]])
    if live := document.get("live"):
        show_text(["", f"live  {live['outcome']}: {live['why']}"])
    show_text(["", *_basis(verdict)])


def show_text(lines: Iterable[str]) -> None:
    """Lines on standard output, as wide as they are."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


_COLUMNS = [
    "require", "outcome", "candidate", "incumbent", "difference", "between", "asked", "p",
    "tasks × attempts",
]  # fmt: skip
_GUARD_COLUMNS = ["guard", "outcome", "candidate", "incumbent", "change", "between", "limit"]


def _requirement(one: Mapping[str, Any]) -> list[str]:
    own = one.get("own") or {}
    p = one.get("p", own.get("p"))
    tasks = one.get("tasks")
    return [
        f"{one['suite']} {one['metric']}",
        one["outcome"],
        _number(one.get("candidate_mean")),
        _number(one.get("incumbent_mean")),
        _signed(one.get("difference")),
        _interval(one, _signed),
        _asked(one, own),
        "" if p is None else f"{p:.3g}",
        "" if tasks is None else f"{tasks} × {_attempts(one.get('attempts_found'))}",
    ]


def _asked(one: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """What the policy asks, and of a limit what is shown."""
    most = one.get("direction") == "min"
    limit = one.get("maximum" if most else "minimum")
    parts = []
    if one.get("margin") is not None:
        parts.append(f"margin {one['margin']:g}")
    if limit is not None:
        shown = own.get("upper" if most else "lower")
        told = "" if shown is None else f" (shown: {_number(shown)})"
        parts.append(f"{'at most' if most else 'at least'} {limit:g}{told}")
    if one["alpha"] != one["alpha_asked"]:
        parts.append(f"alpha {one['alpha']:.3g}, corrected from {one['alpha_asked']:g}")
    elif one["alpha"] != 0.05:
        parts.append(f"alpha {one['alpha']:g}")
    return ", ".join(parts)


def _guard(one: Mapping[str, Any]) -> list[str]:
    relative = one["kind"] in {"max_increase", "max_decrease"}
    told = _share if relative else _number
    slack = f" + {one['slack']:g}" if one.get("slack") else ""
    limit = f"{one['limit']:.0%}" if relative else f"{one['limit']:g}"
    return [
        f"{one['suite']} {one['metric']}",
        one["outcome"],
        _number(one.get("candidate_mean")),
        _number(one.get("incumbent_mean")),
        told(one.get("value")),
        _interval(one, told),
        f"{one['kind']} {limit}{slack}",
    ]


def _basis(verdict: Verdict) -> list[str]:
    document = verdict.document
    lines = [f"verdict  {verdict.id}", f"policy   {document.get('policy') or '(none)'}"]
    for name, suite in (document.get("suites") or {}).items():
        lines.append(f"suite    {name} {suite['version']}")
        for side in ("candidate", "incumbent"):
            if shown := suite.get(side):
                told = f"{shown['scored']} attempts of {shown['checkpoint']}"
                told += f", {shown['errors']} errors" if shown["errors"] else ""
                told += f", {shown['stale']} too old" if shown["stale"] else ""
                lines.append(f"           {told}, {shown['evidence']}")
    if at := document.get("at"):
        lines.append(f"at       {time_of(at):%Y-%m-%d %H:%M:%S} UTC, penstock {document['code']}")
    return lines


def _attempts(found: Mapping[str, list[int]] | None) -> str:
    if not found:
        return ""
    counts = [str(least) if least == most else f"{least}–{most}" for least, most in found.values()]
    return counts[0] if len(set(counts)) == 1 else " / ".join(counts)


def _interval(one: Mapping[str, Any], told: Any) -> str:
    lower, upper = one.get("lower"), one.get("upper")
    return "" if lower is None or upper is None else f"{told(lower)} … {told(upper)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.4f}" if abs(value) < 10 else f"{value:+.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"
