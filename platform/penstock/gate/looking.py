"""What the evidence of a suite is worth, before any statistics: pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.checkpoints.attempts import Attempt
from penstock.gate.adaptive import Counted, count
from penstock.gate.amounts import Amounts, Sifted, amounts, sift, unfit
from penstock.gate.evidence import Evidence, Named, Side, SuiteEvidence
from penstock.gate.policy import EvidenceRules, Metric
from penstock.gate.verdicts import Outcome

#: How many names a sentence lists.
_NAMES = 3


@dataclass(frozen=True)
class Shown:
    """What one of the two has shown on a suite."""

    name: str
    sifted: Sifted
    digest: str


@dataclass(frozen=True)
class Looked:
    """A suite whose results may be compared, unless it has `problems`."""

    suite: str
    version: str | None
    #: Those that each side has to have results of.
    tasks: Sequence[str]
    #: Whether the suite itself says so; else these are the tasks that anybody tried.
    listed: bool
    candidate: Shown | None
    incumbent: Shown | None
    problems: Sequence[str]
    #: Which of the candidate's attempts count, where a design says it.
    counted: Counted | None = None

    def level(self, alpha: float) -> float:
        """With which level a test errs in at most alpha of all cases, over all looks."""
        return alpha if self.counted is None else self.counted.level(alpha)

    @property
    def sides(self) -> list[Shown]:
        return [one for one in (self.candidate, self.incumbent) if one is not None]


@dataclass(frozen=True)
class Gap:
    """Why a metric cannot be judged: ERROR or INCONCLUSIVE."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Told:
    """A metric of both sides, or what is missing of it."""

    candidate: Amounts = field(default_factory=dict)
    incumbent: Amounts | None = None
    gaps: Sequence[Gap] = ()


def look_at(evidence: Evidence, suite: SuiteEvidence, rules: EvidenceRules) -> Looked:
    """Raises nothing: what is wrong stands in `problems`."""
    if suite.version is None:
        return Looked(suite.suite, None, (), False, None, None, [_unknown(evidence, suite)])
    pairs: list[tuple[Named, Side]] = [(evidence.candidate, suite.candidate)]
    if evidence.incumbent is not None:
        pairs.append((evidence.incumbent, suite.incumbent or Side()))
    counted = None
    if (design := suite.candidate.design) is not None:
        counted = count(design, suite.candidate.attempts)
        if counted.look:
            pairs[0] = evidence.candidate, replace(suite.candidate, attempts=counted.attempts)
    shown = [
        Shown(who.name, sift(side.attempts, evidence.at, rules.max_age_s), side.digest)
        for who, side in pairs
    ]
    tried = sorted({one.result.task for _, side in pairs for one in side.attempts})
    problems: list[str] = []
    for (_, side), one in zip(pairs, shown, strict=True):
        problems += _problems(suite, side, one, rules)
    return Looked(
        suite=suite.suite,
        version=suite.version,
        tasks=tuple(suite.tasks) or tuple(tried),
        listed=bool(suite.tasks),
        candidate=shown[0],
        incumbent=shown[1] if len(shown) > 1 else None,
        problems=problems,
        counted=counted,
    )


def _unknown(evidence: Evidence, suite: SuiteEvidence) -> str:
    if suite.unlisted is not None:
        return suite.unlisted
    pinned = evidence.policy.versions.get(suite.suite) if evidence.policy else None
    if pinned is not None:
        return f"there is no version {pinned} of the suite {suite.suite}, which the policy names"
    return f"there is no suite {suite.suite}"


def _problems(suite: SuiteEvidence, side: Side, one: Shown, rules: EvidenceRules) -> list[str]:
    sifted = one.sifted
    if not side.attempts:
        if side.elsewhere:
            return [
                f"{one.name} was scored on another version of {suite.suite}"
                f" ({listed(side.elsewhere)}), and {suite.version} counts"
            ]
        return [f"{one.name} has no results on {suite.suite}"]
    if sifted.future:
        return [f"{sifted.future} results of {one.name} on {suite.suite} are from the future"]
    if suite.tasks and (others := {each.result.task for each in side.attempts} - {*suite.tasks}):
        return [f"{one.name} has results of tasks that {suite.suite} has not ({listed(others)})"]
    if sifted.errors and sifted.error_share > rules.max_error_share:
        return [
            f"{sifted.errors} of {sifted.errors + len(sifted.scored)} attempts of {one.name} on"
            f" {suite.suite} are errors, {sifted.by_task:.1%} of a task's on average, and at most"
            f" {rules.max_error_share:.1%} may be"
        ]
    if not sifted.scored:
        what = "are too old" if sifted.stale else "are errors"
        return [f"all results of {one.name} on {suite.suite} {what}"]
    return []


def tell(looked: Looked, metric: Metric, attempts: int) -> Told:
    """A metric for each task of both sides."""
    found: list[Amounts] = []
    gaps: list[Gap] = []
    if looked.counted is not None and looked.counted.look == 0:
        why = f"the plan of {looked.sides[0].name} on {looked.suite} has not come to its first look"
        gaps.append(Gap("INCONCLUSIVE", why))
    for one in looked.sides:
        said = amounts(one.sifted.scored, metric)
        found.append(said)
        if gap := _gap(looked, one, said, metric, attempts):
            gaps.append(gap)
    return Told(found[0], found[1] if len(found) > 1 else None, gaps)


def _gap(looked: Looked, one: Shown, said: Amounts, metric: Metric, attempts: int) -> Gap | None:
    where = f"{one.name} on {looked.suite}"
    for kept in one.sifted.scored:
        if why := unfit(kept.result, metric):
            return Gap("ERROR", f"{_attempt(kept.result)} of {where} {why}")
    if not said:
        return Gap("ERROR", f"no result of {where} says its {metric}")
    silent = len(one.sifted.scored) - sum(map(len, said.values()))
    if silent:
        return Gap("INCONCLUSIVE", f"{silent} results of {where} do not say their {metric}")
    missing = [task for task in looked.tasks if task not in said]
    short = [task for task in looked.tasks if len(said.get(task, ())) < attempts]
    if short and one.sifted.stale:
        return Gap("ERROR", f"{one.sifted.stale} results of {where} are too old: run it again")
    if missing:
        why = f"{len(missing)} of {len(looked.tasks)} tasks have no result of {where}"
        return Gap("INCONCLUSIVE", f"{why} ({listed(missing)})")
    if short:
        lacking = sum(attempts - len(said[task]) for task in short)
        why = f"{lacking} attempts of {where} are missing: {attempts} are asked of each task"
        return Gap("INCONCLUSIVE", f"{why} ({listed(short)})")
    return None


def _attempt(one: Attempt) -> str:
    return f"attempt {one.attempt} at {one.task}"


def listed(names: Sequence[str] | set[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - _NAMES} more" if len(known) > _NAMES else ""
    return ", ".join(known[:_NAMES]) + more
