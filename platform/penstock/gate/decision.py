"""What follows from the evidence: pure. The same evidence gives the same verdict, in any order.

ERROR: the evidence cannot be judged. FAIL: something is shown to be worse than it may be.
INCONCLUSIVE: neither. PASS: all that the policy demands is shown. No number ever stands in for
missing data.
"""

from dataclasses import asdict, replace
from typing import Any

from penstock.gate.evidence import Evidence, SuiteEvidence
from penstock.gate.policy import TASKS_LEAST, Guard, Policy
from penstock.gate.requirements import judge_requirement, measure_guard
from penstock.gate.results import SuiteResults, is_from_the_future, metric_values, suite_results
from penstock.gate.verdict import Finding, Outcome, PartVerdict, Verdict, worst_of


def decide(evidence: Evidence) -> Verdict:
    """The verdict with its document."""
    document = _frame(evidence)
    policy = evidence.policy
    if problem := _problem(evidence):
        return _verdict(evidence, "ERROR", [problem], document)
    assert policy is not None
    looked = {
        name: suite_results(evidence, suite, policy.evidence)
        for name, suite in sorted(evidence.suites.items())
    }
    document["suites"] = {name: _suite_facts(one) for name, one in looked.items()}
    document["makers"] = {name: _makers(one) for name, one in sorted(evidence.suites.items())}
    document["notes"] += _made(evidence)
    document["notes"] += [_look(one) for one in looked.values() if one.counted is not None]
    if problems := [why for one in looked.values() for why in one.problems]:
        return _verdict(evidence, "ERROR", problems, document)
    required = [_requirement(policy, at, looked) for at in range(len(policy.require))]
    guarded = [_guard(one, looked[one.suite]) for one in policy.guards]
    live = _live(evidence, policy)
    document |= {
        "requirements": [one.document for one in required],
        "guards": [one.document for one in guarded],
        "live": live.document if live else None,
    }
    outcome, why = _combined(policy, required, [*guarded, *([live] if live else [])])
    return _verdict(evidence, outcome, why, document)


def _frame(evidence: Evidence) -> dict[str, Any]:
    incumbent = evidence.incumbent
    notes = []
    if incumbent is None:
        notes.append("The channel has no checkpoint yet: minimums alone decide.")
    if evidence.policy is not None and evidence.policy.live and not evidence.full:
        notes.append("For a canary, live metrics are not asked.")
    return {
        "channel": evidence.channel,
        "channel_version": evidence.channel_version,
        "policy": evidence.policy_digest,
        "policy_text": evidence.policy.text if evidence.policy else None,
        "candidate": _named(evidence.candidate),
        "incumbent": _named(incumbent) if incumbent else None,
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


def _made(evidence: Evidence) -> list[str]:
    """What a reader should know of how attempts were made; it decides nothing."""
    notes = []
    for name, suite in sorted(evidence.suites.items()):
        for who, side in (
            (evidence.candidate, suite.candidate),
            (evidence.incumbent, suite.incumbent),
        ):
            if who is None or side is None:
                continue
            if not all(one.isolated for one in side.makers):
                notes.append(f"{name}: attempts of {who.name} were made without isolation.")
            if len(side.makers) > 1:
                notes.append(
                    f"{name}: {len(side.makers)} agents or imports made those of {who.name}."
                )
    return notes


def _named(one: Any) -> dict[str, str]:
    return {"name": one.name, "digest": one.digest}


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


def _suite_facts(one: SuiteResults) -> dict[str, Any]:
    return {
        "version": one.version,
        "tasks": len(one.tasks),
        "tasks_listed": one.listed,
        "design": one.counted.document if one.counted is not None else None,
        **{
            side: {
                "checkpoint": shown.name,
                "scored": len(shown.sifted.scored),
                "errors": shown.sifted.errors,
                "stale": shown.sifted.stale,
                "evidence": shown.digest,
                "oldest": min((kept.scored_at for kept in shown.sifted.scored), default=None),
            }
            for side, shown in (("candidate", one.candidate), ("incumbent", one.incumbent))
            if shown is not None
        },
    }


def _look(one: SuiteResults) -> str:
    assert one.counted is not None
    look, looks = one.counted.look, len(one.counted.design.looks)
    return (
        f"On {one.suite} attempts are added until it is decided: this is look {look} of {looks},"
        " and tests are as strict as that asks."
    )


def _makers(one: SuiteEvidence) -> dict[str, list[dict[str, Any]]]:
    sides = {"candidate": one.candidate, "incumbent": one.incumbent}
    return {name: [asdict(maker) for maker in side.makers] for name, side in sides.items() if side}


def _requirement(policy: Policy, at: int, looked: dict[str, SuiteResults]) -> PartVerdict:
    one = policy.require[at]
    # Whoever may choose which of several to meet has as many chances to be lucky.
    chances = len(policy.require) if policy.combine == "any" else 1
    mine = looked[one.suite]
    return judge_requirement(one, mine, mine.level(one.alpha / chances))


def _guard(one: Guard, looked: SuiteResults) -> PartVerdict:
    told = metric_values(looked, one.metric, 1)
    asked, one = one.alpha, replace(one, alpha=looked.level(one.alpha))
    facts = asdict(one) | {"alpha_asked": asked}
    if told.gaps:
        return PartVerdict(worst_of(told.gaps), "; ".join(gap.why for gap in told.gaps), facts)
    if len(told.candidate) < TASKS_LEAST:
        why = f"{len(told.candidate)} tasks are too few to say anything: {TASKS_LEAST} at least"
        return PartVerdict("INCONCLUSIVE", why, facts)
    found = measure_guard(one, told.candidate, told.incumbent)
    return PartVerdict(found.outcome, found.why, facts | asdict(found))


def _live(evidence: Evidence, policy: Policy) -> PartVerdict | None:
    """What the canary has shown, where all traffic is asked for."""
    if not policy.live or not evidence.full or evidence.incumbent is None:
        return None
    gap = _live_gap(evidence, policy)
    look = evidence.live
    known = look is not None and look.document is not None
    facts = {"at": look.at, "look": look.document} if look is not None and known else {}
    return PartVerdict(gap.outcome, gap.why, facts)


def _live_gap(evidence: Evidence, policy: Policy) -> Finding:
    look, name = evidence.live, evidence.candidate.name
    if look is None or look.since_version is None:
        why = f"{name} has not been a canary: `penstock promote {name} --share 0.05` makes it one"
        return Finding("INCONCLUSIVE", why)
    if look.document is None or look.at is None:
        return Finding("INCONCLUSIVE", "nobody has looked at the canary yet")
    if is_from_the_future(look.at, evidence.at):
        return Finding("ERROR", "the newest look at the canary is from the future")
    if look.document.get("policy", policy.digest) != policy.digest:
        return Finding("INCONCLUSIVE", "the newest look at the canary was made by another policy")
    age = policy.evidence.max_age_s
    if age is not None and look.at < evidence.at - age * 1_000_000:
        return Finding("INCONCLUSIVE", "the newest look at the canary is too old")
    outcome, told = look.document.get("outcome"), look.document.get("why", "")
    if outcome == "pass":
        return Finding("PASS", "the canary has shown it")
    if outcome == "breach":
        return Finding("FAIL", f"the canary is shown to be worse than it may be: {told}")
    if outcome == "error":
        return Finding("ERROR", f"the newest look at the canary failed: {told}")
    return Finding("INCONCLUSIVE", f"the canary has not shown enough yet: {told}")


def _combined(
    policy: Policy, required: list[PartVerdict], others: list[PartVerdict]
) -> tuple[Outcome, list[str]]:
    """All parts have to pass, so none needs a correction; of requirements one may be enough."""
    told = [
        f"{one.suite} {one.metric}: {part.why}"
        for one, part in zip(policy.require, required, strict=True)
        if part.outcome != "PASS"
    ]
    of_require = _require_outcome(policy, required)
    if of_require == "PASS":
        told = []
    asked = [one for one in required if not one.idle]
    if not asked:
        of_require = worst_of([Finding("INCONCLUSIVE", ""), Finding(of_require, "")])
        told.append("without an incumbent there is nothing to show: give a requirement a minimum")
    for guard, part in zip([*policy.guards, None], others, strict=False):
        if part.outcome != "PASS":
            name = f"guard of {guard.metric} on {guard.suite}" if guard else "live"
            told.append(f"{name}: {part.why}")
    outcomes = [Finding(of_require, ""), *(Finding(one.outcome, "") for one in others)]
    return worst_of(outcomes), told or ["all that the policy demands is shown"]


def _require_outcome(policy: Policy, required: list[PartVerdict]) -> Outcome:
    outcomes = [one.outcome for one in required if not one.idle] or ["PASS"]
    if policy.combine == "all" or "ERROR" in outcomes:
        return worst_of([Finding(one, "") for one in outcomes])
    if "PASS" in outcomes:
        return "PASS"
    return "FAIL" if set(outcomes) == {"FAIL"} else "INCONCLUSIVE"


def _verdict(
    evidence: Evidence, outcome: Outcome, why: list[str], document: dict[str, Any]
) -> Verdict:
    document |= {"outcome": outcome, "why": why}
    return Verdict(outcome, evidence.channel, evidence.candidate.name, document)
