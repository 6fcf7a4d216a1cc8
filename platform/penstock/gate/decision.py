"""What follows from the evidence: pure. The same evidence gives the same verdict, in any order.

ERROR: the evidence cannot be judged. FAIL: something is shown to be worse than the policy allows.
INCONCLUSIVE: neither. PASS: all that the policy demands is shown. No number ever replaces missing
data.
"""

from dataclasses import asdict
from typing import Any

from penstock.checkpoints.checkpoint import Checkpoint
from penstock.gate.evidence import Evidence, SideEvidence, SuiteEvidence
from penstock.gate.policy import Policy
from penstock.gate.requirements import judge_guard, judge_requirement
from penstock.gate.results import SuiteResults, is_from_the_future, suite_results
from penstock.gate.verdict import Outcome, PartVerdict, Verdict, worst_of


def decide(evidence: Evidence) -> Verdict:
    """The verdict with its document."""
    document, policy = _document(evidence), evidence.policy
    if problem := _problem(evidence):
        return _verdict(evidence, "ERROR", [problem], document)
    assert policy is not None
    suites = sorted(evidence.suites.items())
    results = {name: suite_results(evidence, suite, policy.evidence) for name, suite in suites}
    document["suites"] = {name: _suite_facts(result) for name, result in results.items()}
    document["makers"] = {
        name: {
            role: [asdict(maker) for maker in side.makers]
            for role, (_, side) in _sides(evidence, suite).items()
        }
        for name, suite in suites
    }
    document["notes"] += [note for name, suite in suites for note in _notes(evidence, name, suite)]
    for name, result in results.items():
        if result.counted is not None:
            look, looks = result.counted.look, len(result.counted.design.looks)
            document["notes"].append(
                f"On {name} attempts are added until it is decided: this is look {look} of {looks},"
                " and tests are as strict as that asks."
            )
    if problems := [problem for result in results.values() for problem in result.problems]:
        return _verdict(evidence, "ERROR", problems, document)
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
    outcome, why = _combined(policy, required, guarded, live)
    return _verdict(evidence, outcome, why, document)


def _document(evidence: Evidence) -> dict[str, Any]:
    """What is known before anything is judged."""
    incumbent = evidence.incumbent
    notes = []
    if incumbent is None:
        notes.append("The channel has no checkpoint yet: minimums alone decide.")
    if evidence.policy is not None and evidence.policy.live and not evidence.full:
        notes.append("For a canary, live metrics are not needed.")
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


def _named(checkpoint: Checkpoint) -> dict[str, str]:
    return {"name": checkpoint.name, "digest": checkpoint.digest}


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


def _sides(evidence: Evidence, suite: SuiteEvidence) -> dict[str, tuple[str, SideEvidence]]:
    """By role: the name of the checkpoint, and its evidence."""
    sides = {"candidate": (evidence.candidate.name, suite.candidate)}
    if evidence.incumbent is not None and suite.incumbent is not None:
        sides["incumbent"] = (evidence.incumbent.name, suite.incumbent)
    return sides


def _notes(evidence: Evidence, suite_name: str, suite: SuiteEvidence) -> list[str]:
    """What a reader should know of how attempts were made; it decides nothing."""
    notes = []
    for name, side in _sides(evidence, suite).values():
        if not all(maker.isolated for maker in side.makers):
            notes.append(f"{suite_name}: attempts of {name} were made without isolation.")
        if len(side.makers) > 1:
            makers = f"{len(side.makers)} agents or imports"
            notes.append(f"{suite_name}: {makers} made the attempts of {name}.")
    return notes


def _suite_facts(results: SuiteResults) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": results.version,
        "tasks": len(results.tasks),
        "tasks_listed": results.listed,
        "design": results.counted.document if results.counted is not None else None,
    }
    for role, side in (("candidate", results.candidate), ("incumbent", results.incumbent)):
        if side is not None:
            facts[role] = {
                "checkpoint": side.name,
                "scored": len(side.scored),
                "errors": side.errors,
                "stale": side.stale,
                "evidence": side.digest,
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
        facts = {} if look.document is None else {"at": look.at, "look": look.document}
        return PartVerdict("INCONCLUSIVE", "nobody has looked at the canary yet", facts)
    age = policy.evidence.max_age_s
    shown = look.document.get("why", "")
    outcome: Outcome = "INCONCLUSIVE"
    why = f"the canary has not shown enough yet: {shown}"
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


def _verdict(
    evidence: Evidence, outcome: Outcome, why: list[str], document: dict[str, Any]
) -> Verdict:
    document |= {"outcome": outcome, "why": why}
    return Verdict(outcome, evidence.channel, evidence.candidate.name, document)
