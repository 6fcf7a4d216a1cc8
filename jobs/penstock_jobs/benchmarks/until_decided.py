"""`bench run --until-decided`: attempts come until the gate's verdict on this suite stands.

The gate itself decides at the looks of a design that is stored before the first attempt. Nothing
else has a say: a run that was cut off asks again and gets the same answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from penstock.channels.judgement import channel_evidence
from penstock.checkpoints.attempts import Attempt, AttemptScope, RecordedAttempt
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.decision import decide
from penstock.gate.designs import (
    Design,
    is_hopeless,
    keep_design,
    look_progress,
    make_design,
    next_attempts,
)
from penstock.gate.evidence import Evidence, SideEvidence
from penstock.gate.policy import Policy, Requirement
from penstock.gate.verdict import Verdict
from penstock_jobs.benchmarks.run import PlannedAttempt

MOST_DEFAULT = 8

_NOBODY = SideEvidence()

_Scores = dict[str, list[float]]


@dataclass(frozen=True)
class LookResult:
    """The verdict on this suite alone, and why no attempts follow (None: some do)."""

    look: int
    looks: int
    verdict: Verdict | None
    stopped: Literal["decided", "hopeless", "all looks taken", "too many errors"] | None

    @property
    def document(self) -> dict[str, object]:
        return {
            "look": self.look,
            "looks": self.looks,
            "stopped": self.stopped,
            "outcome": self.verdict.outcome if self.verdict else None,
            "why": self.verdict.document["why"] if self.verdict else [],
        }

    @property
    def text(self) -> str:
        """A sentence or two."""
        outcome = self.verdict.outcome if self.verdict else "Nothing"
        reasons = {
            "decided": "this stands",
            "hopeless": "more attempts would hardly decide it: more tasks may",
            "all looks taken": "there are no more attempts to be had",
            "too many errors": "a task ends in errors again and again",
            None: "it was cut off",
        }
        why = "; ".join(self.verdict.document["why"]) if self.verdict else ""
        verdict = f"{outcome} on this suite at look {self.look} of {self.looks}"
        return f"{verdict}: {reasons[self.stopped]}.{f' ({why})' if why else ''}"


class UntilDecided:
    """Chooses the next attempts of a run. `ended` is the result of its last look."""

    def __init__(
        self, database: Database, place: AttemptScope, channel: str, *, most: int | None = None
    ) -> None:
        """The suite has to be registered. Raises InvalidInput where nothing could be decided:
        without a policy, without results of the incumbent, or where results are there already;
        and CheckpointUnknown."""
        self._database, self._place, self._channel = database, place, channel
        evidence = self._evidence()
        suite = evidence.suites[place.suite]
        design = make_design(
            suite.tasks,
            _scores((suite.incumbent or _NOBODY).attempts),
            least=max((required.attempts for required in _requirements(evidence)), default=1),
            most=most or MOST_DEFAULT,
        )
        self.design: Design = keep_design(database, place, design)
        if most not in (None, self.design.allowed):
            why = f"its plan allows {self.design.allowed} attempts at a task, not {most}"
            raise InvalidInput(what=f"The plan of {place.checkpoint} on {place.suite}", why=why)
        self.ended = LookResult(0, len(self.design.looks), None, None)

    def __call__(self, known: Sequence[Attempt]) -> list[PlannedAttempt]:
        planned = next_attempts(self.design, known)
        look = look_progress(self.design, known).look
        self.ended = self._look(look, known, more=bool(planned))
        if self.ended.stopped is not None:
            return []
        return [PlannedAttempt(attempt, task) for task, attempt in planned]

    def _look(self, look: int, known: Sequence[Attempt], *, more: bool) -> LookResult:
        looks = len(self.design.looks)
        if look == 0:
            return LookResult(0, looks, None, None if more else "too many errors")
        evidence = self._evidence()
        verdict = decide(evidence)
        if verdict.outcome != "INCONCLUSIVE":
            return LookResult(look, looks, verdict, "decided")
        if look == looks:
            return LookResult(look, looks, verdict, "all looks taken")
        if not more:
            return LookResult(look, looks, verdict, "too many errors")
        requirements = _requirements(evidence)
        without_hope = any(self._hopeless(look, one, evidence, known) for one in requirements)
        return LookResult(look, looks, verdict, "hopeless" if without_hope else None)

    def _hopeless(
        self, look: int, required: Requirement, evidence: Evidence, known: Sequence[Attempt]
    ) -> bool:
        side = evidence.suites[self._place.suite].incumbent
        if side is None or required.margin is None or required.metric != "score":
            return False
        numbers = look_progress(self.design, known).numbers
        ours = _plain(attempt for attempt in known if attempt.attempt in numbers[attempt.task])
        theirs = _scores(side.attempts)
        if ours.keys() - theirs.keys():
            return False
        margin, alpha = required.margin, required.alpha
        return is_hopeless(self.design, look, ours, theirs, margin=margin, alpha=alpha)

    def _evidence(self) -> Evidence:
        place = self._place
        database, channel = self._database, self._channel
        evidence = channel_evidence(database, place.tenant, channel, place.checkpoint, full=False)
        return _of_suite(evidence, place)


def _of_suite(evidence: Evidence, place: AttemptScope) -> Evidence:
    """What the policy demands on this suite, and the evidence for that."""
    policy, suite = evidence.policy, evidence.suites.get(place.suite)
    if policy is None:
        why = evidence.policy_problem or "it has no policy, so that nothing can be decided"
        raise InvalidInput(what=f"The channel {evidence.channel}", why=why)
    if suite is None:
        why = f"it does not name the suite {place.suite}"
        raise InvalidInput(what=f"The policy of {evidence.channel}", why=why)
    if all(one.suite != place.suite for one in policy.require):
        why = f"it requires nothing on {place.suite}: give a number of attempts instead"
        raise InvalidInput(what=f"The policy of {evidence.channel}", why=why)
    if suite.version != place.suite_version:
        why = f"the version {suite.version} counts, and this is {place.suite_version}"
        raise InvalidInput(what=f"The suite {place.suite}", why=why)
    if evidence.incumbent and not _scores((suite.incumbent or _NOBODY).attempts):
        why = f"{evidence.incumbent.name}, which it is compared with, has no results there"
        raise InvalidInput(what=f"A plan for {place.checkpoint} on {place.suite}", why=why)
    return replace(evidence, policy=_policy_of(policy, place.suite), suites={place.suite: suite})


def _policy_of(policy: Policy, suite: str) -> Policy:
    """Where one of several requirements is enough, each stays as strict as it is among all."""
    chances = len(policy.require) if policy.combine == "any" else 1
    require = tuple(
        replace(one, alpha=one.alpha / chances) for one in policy.require if one.suite == suite
    )
    guards = tuple(one for one in policy.guards if one.suite == suite)
    return replace(policy, require=require, guards=guards, live=(), combine="all")


def _requirements(evidence: Evidence) -> tuple[Requirement, ...]:
    return evidence.policy.require if evidence.policy is not None else ()


def _scores(attempts: Iterable[RecordedAttempt]) -> _Scores:
    return _plain(kept.result for kept in attempts)


def _plain(attempts: Iterable[Attempt]) -> _Scores:
    scores: _Scores = {}
    for attempt in attempts:
        if attempt.score is not None:
            scores.setdefault(attempt.task, []).append(attempt.score)
    return scores
