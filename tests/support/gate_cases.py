"""Evidence for the gate, made by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt
from penstock.registry.checkpoints.checkpoint import Checkpoint, State
from penstock.registry.gate.decision import decide
from penstock.registry.gate.evidence import (
    Evidence,
    GatedChannel,
    LiveLook,
    SideEvidence,
    SuiteEvidence,
)
from penstock.registry.gate.policy import parse
from penstock.registry.gate.verdict import Verdict

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
HOUR = 60 * MINUTE
POLICY = """
[[require]]
suite = "core"
margin = 0.05
min_tasks = 50
"""
TASKS = [f"t-{at:03}" for at in range(100)]
Scores = Mapping[str, Sequence[float]]


def even(score: float = 1.0, tasks: Sequence[str] = TASKS, attempts: int = 2) -> Scores:
    """The same everywhere."""
    return {task: [score] * attempts for task in tasks}


def side(scores: Scores, at: int = NOW - HOUR, **facts: Any) -> SideEvidence:
    return SideEvidence(
        [
            RecordedAttempt(Attempt(task=task, attempt=which, score=score, **facts), "run-1", at)
            for task, each in scores.items()
            for which, score in enumerate(each)
        ]
    )


def failed(one: RecordedAttempt, error: str = "the sandbox broke") -> RecordedAttempt:
    return replace(one, result=replace(one.result, score=None, error=error))


def checkpoint(name: str, state: State = "registered") -> Checkpoint:
    return Checkpoint(
        tenant="default",
        name=name,
        digest=f"sha256:{name}",
        uri=f"https://models.test/{name}",
        form="whole",
        parent=None,
        state=state,
        checked="not_looked",
        bytes=None,
        note="",
        registered_by="trainer",
    )


def suite(candidate: SideEvidence, incumbent: SideEvidence | None, **facts: Any) -> SuiteEvidence:
    told: dict[str, Any] = {"suite": "core", "version": "v1", "tasks": TASKS}
    return SuiteEvidence(**told | facts, candidate=candidate, incumbent=incumbent)


def evidence(*suites: SuiteEvidence, policy: str = POLICY, **facts: Any) -> Evidence:
    first = any(one.incumbent is None for one in suites)
    told: dict[str, Any] = {
        "channel": GatedChannel(
            tenant="default",
            name="production",
            version=3,
            policy=parse(policy, "the policy").digest,
        ),
        "candidate": checkpoint("new"),
        "incumbent": None if first else checkpoint("old"),
        "policy": parse(policy, "the policy"),
        "suites": {one.suite: one for one in suites},
        "at": NOW,
        "code": "1",
    }
    return Evidence(**told | facts)


def judged(
    candidate: SideEvidence | Scores,
    incumbent: SideEvidence | Scores | None,
    policy: str = POLICY,
    **facts: Any,
) -> Verdict:
    """Of one suite; scores alone are those of complete sides."""
    ours, theirs = (
        one if one is None or isinstance(one, SideEvidence) else side(one)
        for one in (candidate, incumbent)
    )
    assert ours is not None
    return decide(evidence(suite(ours, theirs), policy=policy, **facts))


def look(outcome: str, at: int = NOW - 60_000_000, **facts: Any) -> LiveLook:
    return LiveLook(2, at, {"outcome": outcome, **facts})
