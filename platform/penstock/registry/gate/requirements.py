"""Judgment of requirements and guards.

A requirement compares the mean with a minimum, and the difference from the incumbent with a margin.
"""

from dataclasses import asdict, replace
from math import isfinite
from typing import Any

import numpy as np

from penstock.registry.checkpoints.attempts import listed
from penstock.registry.gate.amounts import MetricAmounts, metric_amounts, plain_amounts
from penstock.registry.gate.policy import SHARES, TASKS_LEAST, Guard, Requirement
from penstock.registry.gate.power import Spread, attempts_for, spread_of, tasks_for
from penstock.registry.gate.results import SuiteResults
from penstock.registry.gate.statistics import Comparison, Ranges, compare_values, estimate
from penstock.registry.gate.verdict import (
    Finding,
    Outcome,
    PartVerdict,
    finite,
    shown_beside,
    worst_of,
)

_COMPARED_LEAST = 2


def judge_requirement(required: Requirement, results: SuiteResults, alpha: float) -> PartVerdict:
    """Judge a requirement. With an `alpha` of 0 nothing is decided, but the numbers are given."""
    facts = asdict(required) | {"alpha": alpha, "alpha_asked": required.alpha}
    for name in ("most", "halved_by"):
        if facts[name] is None:
            del facts[name]
    how = required.attempts, required.most, required.halved_by
    amounts = metric_amounts(results, required.metric, *how)
    facts |= amounts.facts
    findings: list[Finding] = []
    if len(amounts.scored) >= _COMPARED_LEAST:
        findings = _findings(required, amounts, alpha, facts)
    if amounts.gap:
        return PartVerdict(*amounts.gap, facts)
    scored = len(amounts.scored)
    if scored < TASKS_LEAST:
        why = f"{scored} tasks have results; at least {TASKS_LEAST} are needed"
        return PartVerdict("INCONCLUSIVE", why, facts)
    if not findings:
        return PartVerdict("PASS", "there is no incumbent to compare with", facts, idle=True)
    outcome = worst_of([each for each, _ in findings])
    if outcome == "PASS" and scored < required.min_tasks:
        why = f"{scored} tasks have results; {required.min_tasks} are needed"
        return PartVerdict("INCONCLUSIVE", why, facts)
    return PartVerdict(outcome, "; ".join(why for _, why in findings), facts)


def _findings(
    required: Requirement, amounts: MetricAmounts, alpha: float, facts: dict[str, Any]
) -> list[Finding]:
    mean, candidate = amounts.ranges(amounts.sides[0])
    facts["candidate_mean"] = mean
    theirs = None
    if len(amounts.sides) > 1:
        before, theirs = amounts.ranges(amounts.sides[1])
        facts |= {"incumbent_mean": before}
        better = 1.0 if required.direction == "max" else -1.0
        facts["difference"] = better * (mean - before)
    if alpha <= 0:
        return []
    findings = [_against_limit(required, amounts, candidate, alpha, facts)]
    if theirs is not None:
        findings.append(_against_incumbent(required, amounts, (candidate, theirs), alpha, facts))
    return [finding for finding in findings if finding is not None]


def _against_limit(
    required: Requirement,
    amounts: MetricAmounts,
    candidate: Ranges,
    alpha: float,
    facts: dict[str, Any],
) -> Finding | None:
    """Compare the candidate's mean with the minimum or maximum."""
    lower_is_better = required.direction == "min"
    limit = required.maximum if lower_is_better else required.minimum
    if limit is None:
        return None
    sign, scale = -1.0 if lower_is_better else 1.0, _scales(required, limit, limit)
    ends = {"worst": min(0.0, sign), "best": max(0.0, sign)}
    ours = -candidate if lower_is_better else candidate
    estimated = estimate(ours, limit=sign * limit, alpha=alpha, scale=scale, **ends)
    mean = sign * estimated.mean
    bounds = (estimated.lower, estimated.upper)
    if lower_is_better:
        bounds = (-estimated.upper, -estimated.lower)
    own = {"mean": mean, "lower": finite(bounds[0]), "upper": finite(bounds[1]), "p": estimated.p}
    facts["own"] = own
    name = "maximum" if lower_is_better else "minimum"
    if estimated.upper < sign * limit:
        shown_mean = shown_beside(mean, limit)
        why = f"{required.metric} {shown_mean}; the {name} is {limit:g}"
        return "FAIL", why + amounts.missing_text("at their best")
    outcome: Outcome = "PASS" if estimated.lower >= sign * limit else "INCONCLUSIVE"
    shown = own["upper" if lower_is_better else "lower"]
    if shown is None:
        return outcome, amounts.endless_text
    why = f"{'at most' if lower_is_better else 'at least'} {shown_beside(shown, limit)}"
    return outcome, f"{why}; the {name} is {limit:g}{amounts.missing_text('at their worst')}"


def _against_incumbent(
    required: Requirement,
    amounts: MetricAmounts,
    sides: tuple[Ranges, Ranges],
    alpha: float,
    facts: dict[str, Any],
) -> Finding | None:
    """Compare the difference with the margin. Without one the interval is for the reader."""
    margin, (ours, theirs) = required.margin or 0.0, sides
    least, most = ((ours.means[end] + theirs.means[end]) / 2 for end in (0, 1))
    compared = compare_values(
        ours,
        theirs,
        margin=margin,
        alpha=alpha,
        direction=required.direction,
        scale=_scales(required, least, most),
    )
    told = {name: finite(value) for name, value in asdict(compared).items()}
    if required.margin is None:
        facts |= {name: told[name] for name in ("lower", "upper", "standard_error")}
        return None
    facts |= told
    allowed = f"at most {margin:g} is allowed"
    if compared.lower >= -margin:
        why = f"at most {shown_beside(max(-compared.lower, 0), margin)} worse; {allowed}"
        return "PASS", why + amounts.missing_text("at their worst")
    if compared.upper < -margin:
        why = f"at least {shown_beside(-compared.upper, margin)} worse; {allowed}"
        return "FAIL", why + amounts.missing_text("at their best")
    if not np.isfinite(compared.lower):
        return "INCONCLUSIVE", amounts.endless_text
    gains = ours.minus(theirs) if required.direction == "max" else theirs.minus(ours)
    advice = _advice(required, amounts, gains, compared, facts)
    why = f"it may be {shown_beside(-compared.lower, margin)} worse; {allowed}"
    return "INCONCLUSIVE", f"{why}{amounts.missing_text('at their worst')}; {advice}"


def _advice(
    required: Requirement,
    amounts: MetricAmounts,
    gains: Ranges,
    compared: Comparison,
    facts: dict[str, Any],
) -> str:
    """Say how many tasks or attempts decide with a chance of 80 %, if the present estimates
    hold."""
    unit = _metric_scale(required, (compared.candidate_mean + compared.incumbent_mean) / 2) or 1.0
    allowed, difference = (required.margin or 0.0) / unit, compared.difference / unit
    ends = gains.means[0] / unit, gains.means[1] / unit
    if difference < -allowed:  # then a FAIL would be decided
        allowed, difference = -allowed, -ends[1]
    else:
        difference = ends[0]
    assumed = {"margin": allowed, "alpha": compared.alpha, "difference": difference}
    known = gains.known.size
    count = tasks_for(compared.standard_error * known**0.5 / unit, **assumed)
    attempts = None
    if required.metric != "invalid_tool_calls":
        both = [{task: side.amounts[task] for task in amounts.scored} for side in amounts.sides]
        spread = spread_of(*map(plain_amounts, both))
        if spread is not None:
            spread = Spread(between=spread.between / unit**2, within=spread.within / unit**2)
            attempts = attempts_for(spread, compared.tasks, **assumed)
    missing = amounts.missing
    if (
        missing and count is not None and count <= compared.tasks
    ):  # only missing results prevent a decision
        facts["decides"] = {"tasks": None, "attempts": None}
        return f"results of {listed(missing)} would decide, if they are like the others"
    count = max(count, compared.tasks + 1) if count else None
    facts["decides"] = {"tasks": count, "attempts": attempts}
    if count is not None:
        more = f", or {attempts} attempts at each of these" if attempts is not None else ""
        return f"at these values {count} tasks decide{more}"
    if missing:
        return f"no number of tasks would decide while {listed(missing)} have no results"
    return "no number of tasks would decide soon: the difference is close to the margin"


def _metric_scale(required: Requirement, mean: float) -> float | None:
    """The scale of a metric. None for one between 0 and 1, which ratios of sums may leave."""
    if required.metric == "invalid_tool_calls":
        return 1.0
    return None if required.metric in SHARES else abs(mean)


def _scales(required: Requirement, least: float, most: float) -> tuple[float, float] | None:
    first, last = _metric_scale(required, least), _metric_scale(required, most)
    return None if first is None or last is None else (first, last)


# Guards. A relative one is also a limit on a mean over tasks: `candidate − (1 + limit) × incumbent`
# is at most 0. So no ratio of two uncertain numbers must be bounded.


def judge_guard(guard: Guard, results: SuiteResults) -> PartVerdict:
    """Judge a guard. The numbers are given even if a gap prevents a decision."""
    strict = replace(guard, alpha=results.level(guard.alpha))
    facts = asdict(strict) | {"alpha_asked": guard.alpha}
    if guard.most is None:
        del facts["most"]
    amounts = metric_amounts(results, guard.metric, 1, guard.most)
    measured = PartVerdict("INCONCLUSIVE", "nothing can be compared")
    if len(amounts.scored) >= _COMPARED_LEAST and strict.alpha > 0:
        measured = measure_guard(strict, amounts)
    facts |= measured.facts
    missing = {name: amounts.facts[name] for name in ("tasks_scored", "missing") if amounts.missing}
    facts |= missing
    if amounts.gap:
        return PartVerdict(*amounts.gap, facts)
    if (scored := len(amounts.scored)) < TASKS_LEAST:
        why = f"{scored} tasks have results; at least {TASKS_LEAST} are needed"
        return PartVerdict("INCONCLUSIVE", why, facts)
    return replace(measured, facts=facts)


def measure_guard(guard: Guard, amounts: MetricAmounts) -> PartVerdict:
    """`value` lies between `lower` and `upper`; each bound is wrong in alpha of all cases."""
    limit, (mean, ours) = guard.limit, amounts.ranges(amounts.sides[0])
    facts: dict[str, Any] = dict.fromkeys(("incumbent_mean", "value", "lower", "upper", "p"))
    facts |= {"tasks": len(amounts.tasks), "candidate_mean": mean}
    sign = {"max": 1.0, "min": -1.0}.get(guard.kind)
    before, scales = 0.0, (limit, limit)
    if sign is not None:
        over = ours.shifted(-limit) if sign > 0 else -ours.shifted(-limit)
    elif len(amounts.sides) == 1:
        return PartVerdict("PASS", "there is no incumbent to compare with", facts, idle=True)
    else:
        before, theirs = amounts.ranges(amounts.sides[1])
        facts["incumbent_mean"], scales = before, theirs.means
        if guard.slack == 0 and (nothing := _against_nothing(guard, theirs)):
            return PartVerdict(*nothing, facts)
        if guard.kind == "max_increase":
            over = ours.minus(theirs, 1 + limit).shifted(-guard.slack)
        else:
            over = (-ours.minus(theirs, 1 - limit)).shifted(-guard.slack)
    scales = (1.0, 1.0) if guard.metric in SHARES else scales
    excess = estimate(over, limit=0.0, alpha=guard.alpha, scale=scales)
    facts["p"] = excess.p_worse
    outcome: Outcome = "INCONCLUSIVE"
    why = "too few results to decide"
    if excess.upper <= 0:
        outcome, why = "PASS", "it holds"
    elif excess.lower > 0:
        outcome, why = "FAIL", "it is breached"
    why += amounts.missing_text("at their best" if outcome == "FAIL" else "at their worst")
    if not isfinite(excess.upper):
        why = amounts.endless_text
    if sign is not None:
        lower, upper = sorted(limit + sign * end for end in (excess.lower, excess.upper))
        facts |= {"value": mean, "lower": finite(lower), "upper": finite(upper)}
        word = "at most" if sign > 0 else "at least"
        why = f"it is {shown_beside(mean, limit)}; {word} {limit:g} is allowed: {why}"
    elif before:
        limit += guard.slack / before
        ends = {"value": excess.mean, "lower": excess.lower, "upper": excess.upper}
        facts |= {name: finite(limit + end / before) for name, end in ends.items()}
        words = ("less", "more") if guard.kind == "max_decrease" else ("more", "less")
        change = limit + excess.mean / before
        slack = f" beside {guard.slack:g}" if guard.slack else ""
        allowed = f"at most {guard.limit:.1%} {words[0]}{slack} is allowed"
        why = f"{abs(change):.1%} {words[change < 0]}; {allowed}: {why}"
    return PartVerdict(outcome, why, facts)


def _against_nothing(guard: Guard, incumbent: Ranges) -> tuple[Outcome, str] | None:
    least, most = incumbent.means
    if guard.kind == "max_decrease":
        why = "the incumbent has 0, which cannot decrease"
        return ("PASS", why) if most == 0 else None
    why = "the incumbent has 0, so an increase has no share: give the guard a slack"
    return ("INCONCLUSIVE", why) if least == 0 else None
