"""The results of a suite: which attempts count, their problems, and which are missing. Pure,
without statistics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

import msgspec

from penstock.core.toml_document import unknown
from penstock.registry.checkpoints.attempts import RecordedAttempt, error_groups, listed
from penstock.registry.checkpoints.harness import named
from penstock.registry.gate.designs import Design, count_attempts
from penstock.registry.gate.evidence import Evidence, SideEvidence, SuiteEvidence
from penstock.registry.gate.policy import EvidenceRules

#: A corrected clock goes back by less; earlier records then seem later.
_CLOCK_BACK_SECONDS_MAX = 60
_ERRORS_SHOWN = 3


def is_from_the_future(moment: int, now: int) -> bool:
    """Whether a moment is so late that one of two clocks was wrong."""
    return moment > now + _CLOCK_BACK_SECONDS_MAX * 1_000_000


@dataclass(frozen=True, kw_only=True)
class SideResults:
    name: str
    #: The attempts that its digest names: up to the look that counts, also at left out tasks.
    evidence: SideEvidence
    #: The attempts that count: recent and without errors, sorted.
    scored: Sequence[RecordedAttempt]
    errors: int
    #: The errors, how often and where; empty without errors.
    errors_text: str
    stale: int
    #: Recent attempts by task, errors included.
    tried: Mapping[str, int]
    #: Planned attempts by task, up to the look that counts.
    planned: Mapping[str, int]

    def wanted(self, task: str, attempts: int) -> int:
        """The attempts that should count at a task; those without a score are missing."""
        return max(attempts, self.tried.get(task, 0), self.planned.get(task, 0))


class SuiteResults(msgspec.Struct, frozen=True):
    evidence: SuiteEvidence
    problems: Sequence[str]
    #: The tasks that count on both sides: the suite's, or all that were tried.
    tasks: Sequence[str] = ()
    #: Of the candidate, and of the incumbent if there is one.
    sides: Sequence[SideResults] = ()
    #: The candidate's design, and its last complete look.
    design: Design | None = None
    look: int = 0
    #: The left out tasks, with the reasons: the policy's, or another version's.
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def suite(self) -> str:
        return self.evidence.suite

    def unscored(self, side: SideResults) -> list[str]:
        scored = {each.result.task for each in side.scored}
        return [task for task in self.tasks if task not in scored]

    def level(self, alpha: float) -> float:
        """The level of a test that errs with at most alpha over all looks."""
        return self.design.level(self.look, alpha) if self.design else alpha


def harness_difference(suite: SuiteEvidence, *, strict: bool = False) -> str | None:
    """The harnesses of both sides, if there are several. `strict` does not trust unknown ones."""
    sides = (suite.candidate, suite.incumbent)
    ours, theirs = ({each.harness for each in side.makers} if side else set() for side in sides)
    every = ours | theirs
    differ = strict if None in every else len(every) > 1
    if not differ or not theirs:
        return None
    return f"candidate: {named(ours)}; incumbent: {named(theirs)}"


def suite_results(evidence: Evidence, suite: SuiteEvidence, rules: EvidenceRules) -> SuiteResults:
    if suite.version is None:
        problem = suite.unlisted or f"the suite {suite.suite} does not exist"
        pinned = evidence.policy.versions.get(suite.suite) if evidence.policy else None
        if suite.unlisted is None and pinned is not None:
            problem = (
                f"the policy names the version {pinned} of {suite.suite}, which does not exist"
            )
        return SuiteResults(suite, [*suite.alterations, problem])
    named = evidence.policy.left_out(suite.suite) if evidence.policy else {}
    left_out = {**suite.apart, **named}
    wholes = [(evidence.candidate.name, suite.candidate)]
    if evidence.incumbent is not None:
        wholes.append((evidence.incumbent.name, suite.incumbent or SideEvidence()))
    design, look = suite.candidate.design, 0
    results: list[SideResults] = []
    problems: list[str] = list(suite.alterations)
    for name, whole in wholes:
        kept = [each for each in whole.attempts if each.result.task not in left_out]
        side, planned = replace(whole, attempts=kept), {}
        if design is not None and not results:  # only the candidate has a design
            design = design.without(left_out)
            look, attempts = count_attempts(design, side.attempts)
            if look:
                side = replace(side, attempts=attempts)
                planned = {task: design.count(task, look) for task in design.caps}
        result, why = _side_results(suite, name, side, evidence.at, rules)
        results.append(replace(result, evidence=whole if left_out else side, planned=planned))
        problems += side.alterations or ([why] if why else [])
    strict = rules.harness == "same"
    if strict and (difference := harness_difference(suite, strict=True)):
        where = f"attempts at {suite.suite} need one known harness on both sides"
        problems.append(f"{where} ({difference})")
    tasks = suite.tasks or sorted({task for _, whole in wholes for task in whole.tasks})
    for task in sorted(named.keys() - {*tasks}):
        where = f"{suite.suite} at its version {suite.version}"
        problems.append(f"the policy leaves out {task} of {where}: {unknown(task, tasks)}")
    tasks = tuple(task for task in tasks if task not in left_out)
    return SuiteResults(suite, problems, tasks, results, design, look, left_out)


def _side_results(
    suite: SuiteEvidence, name: str, side: SideEvidence, now: int, rules: EvidenceRules
) -> tuple[SideResults, str | None]:
    """The results of a side, and why they cannot be compared."""
    oldest = now - rules.max_age_s * 1_000_000 if rules.max_age_s is not None else 0
    fresh = [each for each in side.attempts if each.scored_at >= oldest]
    tried = Counter(each.result.task for each in fresh)
    failed = Counter(each.result.task for each in fresh if each.result.error is not None)
    scored = sorted(
        (each for each in fresh if each.result.error is None),
        key=lambda each: (each.result.task, each.result.attempt),
    )
    errors, stale = len(fresh) - len(scored), len(side.attempts) - len(fresh)
    results = SideResults(
        name=name,
        evidence=side,
        scored=scored,
        errors=errors,
        errors_text=_errors_text(fresh),
        stale=stale,
        tried=tried,
        planned={},
    )
    if not side.attempts and side.elsewhere:
        return results, (
            f"{name} was scored on another version of {suite.suite} ({listed(side.elsewhere)}),"
            f" but {suite.version} counts: score it there, or name another version under"
            " [suites] of the policy"
        )
    if not side.attempts:
        return results, f"{name} has no results on {suite.suite}"
    if future := sum(is_from_the_future(each.scored_at, now) for each in side.attempts):
        return results, f"{future} results of {name} on {suite.suite} are from the future"
    if suite.tasks and (others := side.tasks - {*suite.tasks}):
        strange = f"tasks that {suite.suite} does not have ({listed(others)})"
        return results, f"{name} has results of {strange}"
    # The mean share of errors over tasks, rounded so that a share at its limit is allowed.
    shares = fsum(failed[task] / tried[task] for task in failed)
    by_task = round(shares / max(len(tried), 1), 12)
    if errors and max(errors / len(fresh), by_task) > rules.max_error_share:
        return results, (
            f"{errors} of {len(fresh)} attempts of {name} on {suite.suite} are errors,"
            f" {by_task:.1%} per task on average; at most {rules.max_error_share:.1%} are"
            f" allowed: {results.errors_text}"
        )
    if not scored:
        reason = "are too old" if stale else f"are errors: {results.errors_text}"
        return results, f"all results of {name} on {suite.suite} {reason}"
    return results, None


def _errors_text(attempts: Sequence[RecordedAttempt]) -> str:
    groups = error_groups(recorded.result for recorded in attempts)
    more = f"; and {len(groups) - _ERRORS_SHOWN} other errors" if groups[_ERRORS_SHOWN:] else ""
    return "; ".join(group.text for group in groups[:_ERRORS_SHOWN]) + more
