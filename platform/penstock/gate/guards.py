"""Whether a guard of a policy holds.

A guard relative to the incumbent is a limit on a mean over tasks as well: `candidate − (1 + limit)
× incumbent` is at most 0. So no ratio of two uncertain numbers has to be bounded, and tasks stay
paired."""

from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from penstock.gate.amounts import MetricAmounts, metric_amounts
from penstock.gate.policy import SHARES, TASKS_LEAST, Guard
from penstock.gate.ranges import Ranges
from penstock.gate.results import SuiteResults
from penstock.gate.statistics import estimate
from penstock.gate.verdict import Outcome, PartVerdict, finite, shown_beside

#: Of fewer tasks there is no variance.
_MEASURED_LEAST = 2


def judge_guard(guard: Guard, results: SuiteResults) -> PartVerdict:
    """The numbers are told also where a gap leaves nothing to decide."""
    strict = replace(guard, alpha=results.level(guard.alpha))
    facts = asdict(strict) | {"alpha_asked": guard.alpha}
    if guard.most is None:
        del facts["most"]
    amounts = metric_amounts(results, guard.metric, 1, guard.most)
    measured = PartVerdict("INCONCLUSIVE", "nothing can be compared")
    if len(amounts.scored) >= _MEASURED_LEAST and strict.alpha > 0:
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
    """All sides have at least two tasks. Without an incumbent a relative limit holds.

    In the facts `value` lies between `lower` and `upper`; each is wrong in alpha of all cases. It
    is the relative change towards the worse, where the limit is relative to an incumbent that is
    not 0."""
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
    why = "too few results to say whether it holds"
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
    """What a relative limit without a slack says of an incumbent that is 0, or may be."""
    least, most = incumbent.means
    if guard.kind == "max_decrease":
        why = "the incumbent's is 0, which cannot decrease"
        return ("PASS", why) if most == 0 else None
    why = "the incumbent's is 0, and no increase is a share of that: give the guard a slack"
    return ("INCONCLUSIVE", why) if least == 0 else None
