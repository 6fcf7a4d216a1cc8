"""The verdict that follows from evidence. Pure: equal evidence in any order gives the same verdict.

ERROR: the evidence cannot be judged. FAIL: something is shown to be worse than allowed. PASS:
everything is shown. INCONCLUSIVE: neither. What is missing counts at its worst for PASS, and at its
best for FAIL."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from penstock.backends.audit.entry import UNSIGNED
from penstock.registry.checkpoints.attempts import listed
from penstock.registry.checkpoints.lineage import MarkedTraining
from penstock.registry.gate.amounts import ROLES
from penstock.registry.gate.evidence import Evidence, SideEvidence
from penstock.registry.gate.policy import DataRules, Policy
from penstock.registry.gate.requirements import judge_guard, judge_requirement
from penstock.registry.gate.results import (
    SuiteResults,
    harness_difference,
    is_from_the_future,
    suite_results,
)
from penstock.registry.gate.verdict import Outcome, PartVerdict, Verdict, worst_of


def decide(evidence: Evidence) -> Verdict:
    channel, policy = evidence.channel, evidence.policy
    candidate, incumbent = evidence.candidate, evidence.incumbent
    notes = []
    if incumbent is None:
        notes.append("The channel has no checkpoint yet: only minimums decide.")
    if policy is not None and policy.live and not evidence.full:
        notes.append("A canary needs no live metrics.")
    if not channel.signed:
        notes.append(f"The evidence is {UNSIGNED}.")
    document: dict[str, Any] = {
        "channel": channel.name,
        "channel_version": channel.version,
        "policy": channel.policy,
        "policy_text": policy.text if policy else None,
        "candidate": {"name": candidate.name, "digest": candidate.digest},
        "incumbent": {"name": incumbent.name, "digest": incumbent.digest} if incumbent else None,
        "full": evidence.full,
        "signed": channel.signed,
        "at": evidence.at,
        "code": evidence.code,
        "notes": notes,
        "suites": {},
        "makers": {},
        "requirements": [],
        "guards": [],
        "live": None,
        "data": None,
    }
    outcome, why = _judge(evidence, document)
    document |= {"outcome": outcome, "why": why}
    return Verdict(outcome, channel.name, candidate.name, document)


def _judge(evidence: Evidence, document: dict[str, Any]) -> tuple[Outcome, list[str]]:
    if problem := _problem(evidence):
        return "ERROR", [problem]
    policy = evidence.policy
    assert policy is not None
    results = {
        name: suite_results(evidence, suite, policy.evidence)
        for name, suite in sorted(evidence.suites.items())
    }
    for name, result in results.items():
        suite = result.evidence
        document["suites"][name] = _suite_facts(result)
        makers = document["makers"].setdefault(name, {})
        # For the reader: how attempts were made. It decides nothing.
        for role in ROLES:
            checkpoint, side = getattr(evidence, role), getattr(suite, role)
            if checkpoint is None or side is None:
                continue
            makers[role] = [asdict(maker) for maker in side.makers]
            notes = _side_notes(checkpoint.name, side, suite.version)
            document["notes"] += [f"{name}: {note}." for note in notes]
        if difference := harness_difference(suite):
            note = f"{name}: harnesses differ, and may explain a difference ({difference})."
            document["notes"].append(note)
        if result.design is not None:
            document["notes"].append(
                f"{name} adds attempts until it is decided: this is look {result.look} of"
                f" {len(result.design.looks)}, and tests are corrected for the looks."
            )
        document["notes"] += [f"{name}: {note}." for note in _missing_notes(result)]
    required = []
    for each in policy.require:
        alpha = results[each.suite].level(each.alpha / policy.chances)
        required.append(judge_requirement(each, results[each.suite], alpha))
    guarded = [judge_guard(guard, results[guard.suite]) for guard in policy.guards]
    live = _live(evidence, policy)
    data = _data(evidence.training, policy.data)
    document["notes"] += [f"{data.why}."] if data and data.outcome == "PASS" else []
    approval = _approval(evidence, policy)
    document |= {"approval": approval.document} if approval else {}
    document |= {
        "requirements": [part.document for part in required],
        "guards": [part.document for part in guarded],
        "live": live.document if live else None,
        "data": data.document if data else None,
    }
    if problems := [problem for result in results.values() for problem in result.problems]:
        return "ERROR", problems
    more = {"live": live, "data": data, "approval": approval}
    return _combined(policy, required, guarded, more)


def _side_notes(name: str, side: SideEvidence, version: str | None) -> Iterator[str]:
    if not all(maker.isolated for maker in side.makers):
        yield f"attempts of {name} were made without isolation"
    if side.seen:
        yield f"{name} learned from sessions that tasks were made from: {listed(side.seen)}"
    if side.elsewhere and side.attempts:
        how = f"scores of {name} at {listed(side.elsewhere)} do not count"
        yield f"{how}; only {version} counts"
    if (count := len(side.makers)) > 1:
        yield f"{count} agents or imports made the attempts of {name}"


def _problem(evidence: Evidence) -> str | None:
    """The reason that nothing can be judged, or None."""
    channel = evidence.channel.name
    if flaw := evidence.channel.flaw:
        return f"the history of the channel breaks at version {flaw.number}: {flaw.why}"
    if evidence.policy_problem:
        return evidence.policy_problem
    if evidence.policy is None:
        return (
            f"the channel {channel} has no policy: set one with `penstock channels policy"
            f" {channel} --set FILE`"
        )
    if evidence.candidate.state == "withdrawn":
        return f"{evidence.candidate.name} is withdrawn"
    if evidence.incumbent and evidence.incumbent.name == evidence.candidate.name:
        return f"the channel {channel} already points at {evidence.candidate.name}"
    return None


def _suite_facts(results: SuiteResults) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": results.evidence.version,
        "tasks": len(results.tasks),
        "tasks_listed": bool(results.evidence.tasks),
        "design": None,
        "journal": asdict(results.evidence.journal),
    }
    if (design := results.design) is not None:
        looks = {"looks": design.looks, "exponent": design.exponent}
        facts["design"] = {"look": results.look, **looks}
    for role, side in zip(ROLES, results.sides, strict=False):
        facts[role] = {
            "checkpoint": side.name,
            "scored": len(side.scored),
            "errors": side.errors,
            "stale": side.stale,
            "evidence": side.evidence.digest,
            "journal": asdict(side.evidence.journal),
            "oldest": min((attempt.scored_at for attempt in side.scored), default=None),
        }
        if side.evidence.version is not None:
            facts[role]["version"] = side.evidence.version
        if unscored := results.unscored(side):
            facts[role]["unscored"] = unscored
    if results.left_out:
        reasons = sorted(results.left_out.items())
        facts["left_out"] = [{"task": task, "reason": reason} for task, reason in reasons]
    return facts


def _missing_notes(results: SuiteResults) -> list[str]:
    notes = []
    for reason in sorted(set(results.left_out.values())):
        tasks = [task for task, why in results.left_out.items() if why == reason]
        who = (
            "not compared are"
            if reason in results.evidence.apart.values()
            else "the policy leaves out"
        )
        notes.append(f"{who} {listed(tasks)}: {reason.rstrip('.')}")
    for side in results.sides:
        if not side.scored:
            continue
        unscored = results.unscored(side)
        how = "at its worst for a PASS and at its best for a FAIL"
        if unscored:
            count = f"{len(unscored)} of {len(results.tasks)} tasks"
            notes.append(
                f"{side.name} has no score at {count} ({listed(unscored)}): each counts {how}"
            )
        others = side.errors - sum(side.tried.get(task, 0) for task in unscored)
        if others:
            notes.append(f"{side.name} has {others} errors at scored tasks: each counts {how}")
        if side.errors:
            notes.append(
                f"errors of {side.name}: {side.errors_text}; a score of the same attempt replaces"
                " its error"
            )
    return notes


def _live(evidence: Evidence, policy: Policy) -> PartVerdict | None:
    """The verdict on live metrics, if all of the traffic is asked for."""
    if not policy.live or not evidence.full or evidence.incumbent is None:
        return None
    look, name = evidence.live, evidence.candidate.name
    if look is None or look.since_version is None:
        why = f"{name} has not been a canary: run `penstock promote {name} --share 0.05`"
        return PartVerdict("INCONCLUSIVE", why)
    if look.document is None or look.at is None:
        return PartVerdict("INCONCLUSIVE", "the canary has no look yet")
    age = policy.evidence.max_age_s
    shown = look.document.get("why", "")
    outcome: Outcome = "INCONCLUSIVE"
    if is_from_the_future(look.at, evidence.at):
        outcome, why = "ERROR", "the newest look at the canary is from the future"
    elif look.document.get("policy", policy.digest) != policy.digest:
        why = "the newest look at the canary used another policy"
    elif age is not None and look.at < evidence.at - age * 1_000_000:
        why = "the newest look at the canary is too old"
    elif look.document.get("outcome") == "pass":
        outcome, why = "PASS", "the canary passed"
    elif look.document.get("outcome") == "breach":
        outcome, why = "FAIL", f"the canary is worse than allowed: {shown}"
    elif look.document.get("outcome") == "error":
        outcome, why = "ERROR", f"the newest look at the canary failed: {shown}"
    else:
        why = f"the canary is undecided: {shown}"
    return PartVerdict(outcome, why, {"at": look.at, "look": look.document})


def _data(training: MarkedTraining, rules: DataRules) -> PartVerdict | None:
    """The verdict on learned sessions that were erased or lost their consent. None without any."""
    if not training.erased and not training.withdrawn:
        return None
    blocked = (training.erased and rules.erased == "block") or (
        training.withdrawn and rules.withdrawn == "block"
    )
    counts = [f"{training.erased} sessions erased since"] if training.erased else []
    if training.withdrawn:
        counts.append(f"{training.withdrawn} sessions without consent since")
    facts: dict[str, Any] = {"erased": training.erased, "withdrawn": training.withdrawn}
    facts |= {"rules": asdict(rules), "shards": list(training.shards)}
    why = f"it learned from {' and '.join(counts)}"
    return PartVerdict("FAIL" if blocked else "PASS", why, facts)


def _approval(evidence: Evidence, policy: Policy) -> PartVerdict | None:
    """The verdict on approvals. None if the policy requires none."""
    if policy.approval is None:
        return None
    age = policy.evidence.max_age_s
    oldest = evidence.at - age * 1_000_000 if age is not None else 0
    given = [each for each in evidence.approvals if each.at >= oldest]
    wanted, name = policy.approval.people, evidence.candidate.name
    facts: dict[str, Any] = {"people": wanted, "approvals": [asdict(each) for each in given]}
    if len(given) >= wanted:
        return PartVerdict("PASS", f"approved by {listed([each.actor for each in given])}", facts)
    why = (
        f"{len(given)} of {wanted} people approved: `penstock gate approve {name}"
        f" --channel {evidence.channel.name}`"
    )
    return PartVerdict("INCONCLUSIVE", why, facts)


def _combined(
    policy: Policy,
    required: list[PartVerdict],
    guarded: list[PartVerdict],
    more: Mapping[str, PartVerdict | None],
) -> tuple[Outcome, list[str]]:
    """Combine the parts. All must pass, so none needs a correction; with `any` one requirement
    suffices."""
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
        reasons.append("without an incumbent nothing is compared: give a requirement a minimum")
    others = [
        (f"guard of {guard.metric} on {guard.suite}", part)
        for guard, part in zip(policy.guards, guarded, strict=True)
    ]
    others += [(name, part) for name, part in more.items() if part]
    reasons += [f"{name}: {part.why}" for name, part in others if part.outcome != "PASS"]
    outcome = worst_of([outcome, *(part.outcome for _, part in others)])
    return outcome, reasons or ["the policy is met"]
