"""What follows from the evidence: pure. The same evidence gives the same verdict, in any order.

ERROR: the evidence cannot be judged. FAIL: something is shown to be worse than the policy allows.
INCONCLUSIVE: neither. PASS: all that the policy demands is shown. No number ever replaces missing
data.

A guard relative to the incumbent is a limit on a mean over tasks as well: `candidate − (1 + limit)
× incumbent` is at most 0. So no ratio of two uncertain numbers has to be bounded, and tasks stay
paired."""

from dataclasses import asdict, replace
from typing import Any

from penstock.checkpoints.attempts import listed
from penstock.gate.evidence import Evidence
from penstock.gate.policy import SHARES, Guard, Policy, Requirement
from penstock.gate.power import Spread, attempts_for, spread_of, tasks_for
from penstock.gate.results import (
    Amounts,
    SuiteResults,
    is_from_the_future,
    metric_values,
    plain_amounts,
    suite_results,
    task_values,
)
from penstock.gate.statistics import compare_values, estimate
from penstock.gate.verdict import Outcome, PartVerdict, Verdict, worst_of
from penstock.terminal.output import time_of

_ROLES = ("candidate", "incumbent")


def decide(evidence: Evidence) -> Verdict:
    policy, candidate, incumbent = evidence.policy, evidence.candidate, evidence.incumbent
    notes = []
    if incumbent is None:
        notes.append("The channel has no checkpoint yet: minimums alone decide.")
    if policy is not None and policy.live and not evidence.full:
        notes.append("For a canary, live metrics are not needed.")
    document: dict[str, Any] = {
        "channel": evidence.channel,
        "channel_version": evidence.channel_version,
        "policy": evidence.policy_digest,
        "policy_text": policy.text if policy else None,
        "candidate": {"name": candidate.name, "digest": candidate.digest},
        "incumbent": {"name": incumbent.name, "digest": incumbent.digest} if incumbent else None,
        "full": evidence.full,
        "at": evidence.at,
        "code": evidence.code,
        "notes": notes,
        "suites": {},
        "makers": {},
        "requirements": [],
        "guards": [],
        "live": None,
    }
    outcome, why = _judge(evidence, document)
    document |= {"outcome": outcome, "why": why}
    return Verdict(outcome, evidence.channel, candidate.name, document)


def _judge(evidence: Evidence, document: dict[str, Any]) -> tuple[Outcome, list[str]]:
    if problem := _problem(evidence):
        return "ERROR", [problem]
    policy = evidence.policy
    assert policy is not None
    results = {
        name: suite_results(evidence, suite, policy.evidence)
        for name, suite in sorted(evidence.suites.items())
    }
    looks = []
    for name, result in results.items():
        document["suites"][name] = _suite_facts(result)
        makers = document["makers"].setdefault(name, {})
        # What a reader should know of how attempts were made; it decides nothing.
        for role in _ROLES:
            checkpoint, side = getattr(evidence, role), getattr(evidence.suites[name], role)
            if checkpoint is None or side is None:
                continue
            makers[role] = [asdict(maker) for maker in side.makers]
            if not all(maker.isolated for maker in side.makers):
                how = f"attempts of {checkpoint.name} were made without isolation"
                document["notes"].append(f"{name}: {how}.")
            if side.found and side.found_at is not None:
                how = f"{side.found} attempts of {checkpoint.name} were made before evidence was"
                when = f"{time_of(side.found_at):%Y-%m-%d}"
                document["notes"].append(
                    f"{name}: {how} bound; whether they were changed before {when}, nobody knows."
                )
            if side.elsewhere and side.attempts:
                how = f"scores of {checkpoint.name} at {listed(side.elsewhere)} do not count"
                document["notes"].append(f"{name}: {how}, those at {result.version} do.")
            if (count := len(side.makers)) > 1:
                how = f"{count} agents or imports made the attempts of {checkpoint.name}"
                document["notes"].append(f"{name}: {how}.")
        if result.design is not None:
            looks.append(
                f"On {name} attempts are added until it is decided: this is look {result.look} of"
                f" {len(result.design.looks)}, and tests are as strict as that asks."
            )
    document["notes"] += looks
    if problems := [problem for result in results.values() for problem in result.problems]:
        return "ERROR", problems
    required = []
    for each in policy.require:
        alpha = results[each.suite].level(each.alpha / policy.chances)
        required.append(judge_requirement(each, results[each.suite], alpha))
    guarded = [judge_guard(guard, results[guard.suite]) for guard in policy.guards]
    live = _live(evidence, policy)
    document |= {
        "requirements": [part.document for part in required],
        "guards": [part.document for part in guarded],
        "live": live.document if live else None,
    }
    return _combined(policy, required, guarded, live)


def _problem(evidence: Evidence) -> str | None:
    """Why nothing can be judged at all."""
    if evidence.policy_problem:
        return evidence.policy_problem
    if evidence.policy is None:
        return (
            f"the channel {evidence.channel} has no policy: `penstock channels policy"
            f" {evidence.channel} --set FILE` gives it one"
        )
    if evidence.candidate.state == "withdrawn":
        return f"{evidence.candidate.name} is withdrawn"
    if evidence.incumbent and evidence.incumbent.name == evidence.candidate.name:
        return f"the channel {evidence.channel} is at {evidence.candidate.name} already"
    return None


def _suite_facts(results: SuiteResults) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": results.version,
        "tasks": len(results.tasks),
        "tasks_listed": results.listed,
        "design": None,
        "journal": asdict(results.journal),
    }
    if (design := results.design) is not None:
        looks = {"looks": design.looks, "exponent": design.exponent}
        facts["design"] = {"look": results.look, **looks}
    for role, side in zip(_ROLES, results.sides, strict=False):
        facts[role] = {
            "checkpoint": side.name,
            "scored": len(side.scored),
            "errors": side.errors,
            "stale": side.stale,
            "evidence": side.digest,
            "journal": asdict(side.journal),
            "oldest": min((attempt.scored_at for attempt in side.scored), default=None),
        }
    return facts


def _live(evidence: Evidence, policy: Policy) -> PartVerdict | None:
    """What the canary has shown, where all of the traffic is wanted."""
    if not policy.live or not evidence.full or evidence.incumbent is None:
        return None
    look, name = evidence.live, evidence.candidate.name
    if look is None or look.since_version is None:
        why = f"{name} has not been a canary: `penstock promote {name} --share 0.05` makes it one"
        return PartVerdict("INCONCLUSIVE", why)
    if look.document is None or look.at is None:
        return PartVerdict("INCONCLUSIVE", "nobody has looked at the canary yet")
    age = policy.evidence.max_age_s
    shown = look.document.get("why", "")
    outcome: Outcome = "INCONCLUSIVE"
    if is_from_the_future(look.at, evidence.at):
        outcome, why = "ERROR", "the newest look at the canary is from the future"
    elif look.document.get("policy", policy.digest) != policy.digest:
        why = "the newest look at the canary was made by another policy"
    elif age is not None and look.at < evidence.at - age * 1_000_000:
        why = "the newest look at the canary is too old"
    elif look.document.get("outcome") == "pass":
        outcome, why = "PASS", "the canary has shown it"
    elif look.document.get("outcome") == "breach":
        outcome, why = "FAIL", f"the canary is shown to be worse than allowed: {shown}"
    elif look.document.get("outcome") == "error":
        outcome, why = "ERROR", f"the newest look at the canary failed: {shown}"
    else:
        why = f"the canary has not shown enough yet: {shown}"
    return PartVerdict(outcome, why, {"at": look.at, "look": look.document})


def _combined(
    policy: Policy,
    required: list[PartVerdict],
    guarded: list[PartVerdict],
    live: PartVerdict | None,
) -> tuple[Outcome, list[str]]:
    """All parts have to pass, so none needs a correction; of requirements one may be enough."""
    outcomes = [part.outcome for part in required if not part.idle] or ["PASS"]
    outcome = worst_of(outcomes)
    if policy.combine == "any" and outcome != "ERROR":
        outcome = "FAIL" if set(outcomes) == {"FAIL"} else "INCONCLUSIVE"
        outcome = "PASS" if "PASS" in outcomes else outcome
    reasons = [
        f"{each.suite} {each.metric}: {part.why}"
        for each, part in zip(policy.require, required, strict=True)
        if part.outcome != "PASS" and outcome != "PASS"
    ]
    if all(part.idle for part in required):
        outcome = worst_of(["INCONCLUSIVE", outcome])
        reasons.append("without an incumbent nothing is shown: give a requirement a minimum")
    others = [
        (f"guard of {guard.metric} on {guard.suite}", part)
        for guard, part in zip(policy.guards, guarded, strict=True)
    ]
    others += [("live", live)] if live else []
    reasons += [f"{name}: {part.why}" for name, part in others if part.outcome != "PASS"]
    outcome = worst_of([outcome, *(part.outcome for _, part in others)])
    return outcome, reasons or ["all that the policy demands is shown"]


# Requirements and guards


def judge_requirement(required: Requirement, results: SuiteResults, alpha: float) -> PartVerdict:
    """`alpha` is the requirement's own, or what a correction leaves of it."""
    facts = asdict(required) | {"alpha": alpha, "alpha_asked": required.alpha}
    amounts, gap = metric_values(results, required.metric, required.attempts)
    if amounts:
        counts = [[*map(len, side.values())] for side in amounts]
        ranges = ([min(each), max(each)] for each in counts)
        facts["tasks"] = len(amounts[0])
        facts["attempts_found"] = dict(zip(_ROLES, ranges, strict=False))
    if gap:
        return PartVerdict(*gap, facts)
    candidate, *incumbent = amounts
    findings = []
    if (limited := _against_limit(required, candidate, alpha, facts)) is not None:
        findings.append(limited)
    if incumbent and required.margin is not None:
        findings.append(_against_incumbent(required, candidate, incumbent[0], alpha, facts))
    if not findings:
        return PartVerdict("PASS", "there is no incumbent to compare with", facts, idle=True)
    outcome = worst_of([each for each, _ in findings])
    if outcome == "PASS" and facts["tasks"] < required.min_tasks:
        why = f"{facts['tasks']} tasks have results; {required.min_tasks} are needed"
        return PartVerdict("INCONCLUSIVE", why, facts)
    return PartVerdict(outcome, "; ".join(why for _, why in findings), facts)


def _against_limit(
    required: Requirement, candidate: Amounts, alpha: float, facts: dict[str, Any]
) -> tuple[Outcome, str] | None:
    """The candidate's own mean against the minimum or maximum."""
    lower_is_better = required.direction == "min"
    limit = required.maximum if lower_is_better else required.minimum
    if limit is None:
        return None
    mean, ours = task_values(candidate, sorted(candidate))
    sign, scale = -1.0 if lower_is_better else 1.0, _metric_scale(required, limit)
    ends = {"worst": min(0.0, sign), "best": max(0.0, sign)}
    estimated = estimate(sign * ours, limit=sign * limit, alpha=alpha, scale=scale, **ends)
    own = {"mean": mean, "lower": estimated.lower, "upper": estimated.upper, "p": estimated.p}
    if lower_is_better:
        own |= {"lower": -estimated.upper, "upper": -estimated.lower}
    facts["candidate_mean"], facts["own"] = mean, own
    shown, word, name = own["lower"], "at least", "minimum"
    if lower_is_better:
        shown, word, name = own["upper"], "at most", "maximum"
    if estimated.upper < sign * limit:
        why = f"its {required.metric} of {mean:.4g} is shown to miss the {name} {limit:g}"
        return "FAIL", why
    outcome: Outcome = "PASS" if estimated.lower >= sign * limit else "INCONCLUSIVE"
    return outcome, f"it is shown to be {word} {shown:.4g}, and the {name} is {limit:g}"


def _against_incumbent(
    required: Requirement,
    candidate: Amounts,
    incumbent: Amounts,
    alpha: float,
    facts: dict[str, Any],
) -> tuple[Outcome, str]:
    margin, tasks = required.margin or 0.0, sorted(candidate)
    our_mean, ours = task_values(candidate, tasks)
    their_mean, theirs = task_values(incumbent, tasks)
    scale = _metric_scale(required, (our_mean + their_mean) / 2)
    compared = compare_values(
        ours, theirs, margin=margin, alpha=alpha, direction=required.direction, scale=scale
    )
    facts |= asdict(compared)
    if compared.lower >= -margin:
        return "PASS", f"at most {max(-compared.lower, 0):.4g} worse; {margin:g} is allowed"
    if compared.upper < -margin:
        return "FAIL", f"at least {-compared.upper:.4g} worse; {margin:g} is allowed"
    # What would decide, four times in five, if things are as they seem.
    unit = scale or 1.0
    allowed, difference = margin / unit, compared.difference / unit
    if difference < -allowed:  # then it is the FAIL that would be shown
        allowed, difference = -allowed, -difference
    assumed = {"margin": allowed, "alpha": alpha, "difference": difference}
    count = tasks_for(compared.standard_error * compared.tasks**0.5 / unit, **assumed)
    count = max(count, compared.tasks + 1) if count else None
    attempts = None
    if required.metric != "invalid_tool_calls":
        spread = spread_of(plain_amounts(candidate), plain_amounts(incumbent))
        if spread is not None:
            spread = Spread(between=spread.between / unit**2, within=spread.within / unit**2)
            attempts = attempts_for(spread, compared.tasks, **assumed)
    facts["decides"] = {"tasks": count, "attempts": attempts}
    advice = "no number of tasks would decide soon: the difference lies at the margin"
    if count is not None:
        more = f", or {attempts} attempts at each of these" if attempts is not None else ""
        advice = f"if that stays so, {count} tasks decide{more}"
    return "INCONCLUSIVE", f"it may be {-compared.lower:.4g} worse; {advice}"


def _metric_scale(required: Requirement, mean: float) -> float | None:
    """None between 0 and 1. A ratio of sums may leave that span."""
    if required.metric == "invalid_tool_calls":
        return 1.0
    return None if required.metric in SHARES else abs(mean)


def judge_guard(guard: Guard, results: SuiteResults) -> PartVerdict:
    amounts, gap = metric_values(results, guard.metric, 1)
    strict = replace(guard, alpha=results.level(guard.alpha))
    facts = asdict(strict) | {"alpha_asked": guard.alpha}
    if gap:
        return PartVerdict(*gap, facts)
    measured = measure_guard(strict, amounts[0], amounts[1] if len(amounts) > 1 else None)
    return replace(measured, facts=facts | measured.facts)


def measure_guard(guard: Guard, candidate: Amounts, incumbent: Amounts | None) -> PartVerdict:
    """Both have the same tasks, at least two. Without an incumbent a relative limit holds.

    In the facts `value` lies between `lower` and `upper`; each is wrong in alpha of all cases. It
    is the relative change towards the worse, where the limit is relative to an incumbent that is
    not 0."""
    tasks, limit = sorted(candidate), guard.limit
    mean, ours = task_values(candidate, tasks)
    facts: dict[str, Any] = dict.fromkeys(("incumbent_mean", "value", "lower", "upper", "p"))
    facts |= {"tasks": len(tasks), "candidate_mean": mean}
    sign = {"max": 1.0, "min": -1.0}.get(guard.kind)
    before = 0.0
    if sign is not None:
        over, scale = sign * (ours - limit), limit
    elif incumbent is None:
        return PartVerdict("PASS", "there is no incumbent to compare with", facts)
    else:
        before, theirs = task_values(incumbent, tasks)
        facts["incumbent_mean"] = scale = before
        if before == 0 and guard.slack == 0:
            if guard.kind == "max_decrease":
                return PartVerdict("PASS", "the incumbent's is 0, which cannot decrease", facts)
            why = "the incumbent's is 0, and no increase is a share of that: give the guard a slack"
            return PartVerdict("INCONCLUSIVE", why, facts)
        if guard.kind == "max_increase":
            over = ours - (1 + limit) * theirs - guard.slack
        else:
            over = (1 - limit) * theirs - guard.slack - ours
    scale = 1.0 if guard.metric in SHARES else scale
    excess = estimate(over, limit=0.0, alpha=guard.alpha, scale=scale)
    facts["p"] = excess.p_worse
    outcome: Outcome = "INCONCLUSIVE"
    why = "neither that it holds nor that it is breached is shown"
    if excess.upper <= 0:
        outcome, why = "PASS", "it holds"
    elif excess.lower > 0:
        outcome, why = "FAIL", "it is breached"
    if sign is not None:
        lower, upper = sorted(limit + sign * end for end in (excess.lower, excess.upper))
        facts |= {"value": mean, "lower": lower, "upper": upper}
        word = "at most" if sign > 0 else "at least"
        why = f"it is {mean:.3g}, and {word} {limit:g} is allowed: {why}"
    elif before:
        limit += guard.slack / before
        ends = {"value": excess.mean, "lower": excess.lower, "upper": excess.upper}
        facts |= {name: limit + end / before for name, end in ends.items()}
    return PartVerdict(outcome, why, facts)
