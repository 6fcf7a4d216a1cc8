"""`bench run --until-decided`: attempts come until the gate's verdict on this suite stands.

The gate alone decides, at the looks of a design that is stored before the first attempt: a run
that was cut off asks again and gets the same answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from penstock.channels.judgement import channel_evidence
from penstock.checkpoints.attempts import Attempt, AttemptScope
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
from penstock.gate.policy import Requirement
from penstock.gate.verdict import Verdict
from penstock_jobs.benchmarks.run import PlannedAttempt
from penstock_jobs.benchmarks.summary import scores_by_task

_ATTEMPTS_MAX_DEFAULT = 8
_STOPS = {
    "decided": "this stands",
    "hopeless": "more attempts would hardly decide it: more tasks may",
    "all looks taken": "there are no more attempts to be had",
    "too many errors": "a task ends in errors again and again",
    None: "it was cut off",
}


Stop = Literal["decided", "hopeless", "all looks taken", "too many errors"] | None


@dataclass(frozen=True)
class LookResult:
    """The verdict on this suite alone. `stopped` is why no attempts follow; None if some do."""

    look: int
    looks: int
    verdict: Verdict | None
    stopped: Stop

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
        why = "; ".join(self.verdict.document["why"]) if self.verdict else ""
        verdict = f"{outcome} on this suite at look {self.look} of {self.looks}"
        return f"{verdict}: {_STOPS[self.stopped]}.{f' ({why})' if why else ''}"


class UntilDecided:
    """Chooses the next attempts of a run. `ended` is the result of its last look."""

    def __init__(
        self, database: Database, scope: AttemptScope, channel: str, *, most: int | None = None
    ) -> None:
        """The suite has to be registered. Raises InvalidInput where nothing could be decided:
        without a policy, without results of the incumbent, or where results are there already;
        and CheckpointUnknown."""
        self._database, self._scope, self._channel = database, scope, channel
        evidence = self._evidence()
        suite = evidence.suites[scope.suite]
        design = make_design(
            suite.tasks,
            _scores(suite.incumbent),
            least=max((required.attempts for required in _requirements(evidence)), default=1),
            most=most or _ATTEMPTS_MAX_DEFAULT,
        )
        self.design: Design = keep_design(database, scope, design)
        if most not in (None, self.design.allowed):
            why = f"its plan allows {self.design.allowed} attempts at a task, not {most}"
            raise InvalidInput(what=f"The plan of {scope.checkpoint} on {scope.suite}", why=why)
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
        stopped: Stop = None
        if verdict.outcome != "INCONCLUSIVE":
            stopped = "decided"
        elif look == looks:
            stopped = "all looks taken"
        elif not more:
            stopped = "too many errors"
        elif any(
            self._hopeless(look, required, evidence, known) for required in _requirements(evidence)
        ):
            stopped = "hopeless"
        return LookResult(look, looks, verdict, stopped)

    def _hopeless(
        self, look: int, required: Requirement, evidence: Evidence, known: Sequence[Attempt]
    ) -> bool:
        incumbent = evidence.suites[self._scope.suite].incumbent
        if incumbent is None or required.margin is None or required.metric != "score":
            return False
        numbers = look_progress(self.design, known).numbers
        ours = scores_by_task(
            attempt for attempt in known if attempt.attempt in numbers[attempt.task]
        )
        theirs = _scores(incumbent)
        if ours.keys() - theirs.keys():
            return False
        margin, alpha = required.margin, required.alpha
        return is_hopeless(self.design, look, ours, theirs, margin=margin, alpha=alpha)

    def _evidence(self) -> Evidence:
        """The evidence for the requirements of the policy on this suite alone."""
        scope = self._scope
        evidence = channel_evidence(
            self._database, scope.tenant, self._channel, scope.checkpoint, full=False
        )
        policy, suite = evidence.policy, evidence.suites.get(scope.suite)
        if policy is None:
            why = evidence.policy_problem or "it has no policy, so that nothing can be decided"
            raise InvalidInput(what=f"The channel {evidence.channel}", why=why)
        if suite is None:
            why = f"it does not name the suite {scope.suite}"
            raise InvalidInput(what=f"The policy of {evidence.channel}", why=why)
        if all(required.suite != scope.suite for required in policy.require):
            why = f"it requires nothing on {scope.suite}: give a number of attempts instead"
            raise InvalidInput(what=f"The policy of {evidence.channel}", why=why)
        if suite.version != scope.suite_version:
            why = f"the version {suite.version} counts, and this is {scope.suite_version}"
            raise InvalidInput(what=f"The suite {scope.suite}", why=why)
        if evidence.incumbent and not _scores(suite.incumbent):
            why = f"{evidence.incumbent.name}, which it is compared with, has no results there"
            raise InvalidInput(what=f"A plan for {scope.checkpoint} on {scope.suite}", why=why)
        # If one of several requirements is enough, each keeps the alpha that it has among all.
        chances = len(policy.require) if policy.combine == "any" else 1
        policy = replace(
            policy,
            require=tuple(
                replace(required, alpha=required.alpha / chances)
                for required in policy.require
                if required.suite == scope.suite
            ),
            guards=tuple(guard for guard in policy.guards if guard.suite == scope.suite),
            live=(),
            combine="all",
        )
        return replace(evidence, policy=policy, suites={scope.suite: suite})


def _requirements(evidence: Evidence) -> tuple[Requirement, ...]:
    return evidence.policy.require if evidence.policy is not None else ()


def _scores(side: SideEvidence | None) -> dict[str, list[float]]:
    return scores_by_task(recorded.result for recorded in side.attempts) if side else {}
