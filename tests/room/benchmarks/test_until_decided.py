"""`bench run --until-decided`: as many attempts as the verdict needs, wherever it is cut off."""

from collections.abc import Mapping, Sequence

import pytest

from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.registry.channels.promotion import channel_evidence, judge
from penstock.registry.checkpoints.attempts import Attempt, attempts_of, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from penstock.registry.gate.decision import decide
from penstock_jobs.benchmarks.run import LookResult, UntilDecided
from tests.room.benchmarks.conftest import TENANT
from tests.support.checkpoint_factory import promote, says, set_policy

ALONE = """
[[require]]
suite = "core"
margin = 0.1
min_tasks = 10
"""
POLICY = ALONE + '[[require]]\nsuite = "other"\nmargin = 0.1\n'
TASKS = [f"t-{at:02}" for at in range(60)]
NEW, OLD = (AttemptScope(TENANT, "core", "v1", name) for name in ("new", "old"))


@pytest.fixture
def ready(lake: Lake) -> Lake:
    """`old` is in production, with mixed results on 60 tasks."""
    database = lake.database
    tasks = tuple(SuiteTask(one) for one in TASKS)
    add_suite(database, TENANT, SuiteVersion("core", "v1", tasks))
    set_policy(database, POLICY)
    promote(database, "old", says("PASS"))
    keep(lake, OLD, [(task, at) for task in TASKS for at in range(4)], {})
    return lake


def keep(
    lake: Lake, place: AttemptScope, wanted: Sequence[tuple[str, int]], scores: Mapping[str, float]
) -> None:
    """Results come out as the task and the attempt say, unless the scores do."""
    results = [
        Attempt(task=task, attempt=at, score=scores.get(task, float((int(task[2:]) + at) % 2)))
        for task, at in wanted
    ]
    with lake.database.write() as connection:
        record_attempts(connection, place, "run", results)


def known(lake: Lake) -> list[Attempt]:
    return [one.result for one in attempts_of(lake.database, NEW)]


def until(lake: Lake, scores: Mapping[str, float], *, most: int | None = None) -> LookResult:
    """To the end; each time that attempts are wanted, only half of them come to be."""
    while True:
        choose = UntilDecided(lake.database, NEW, "production", most=most)
        wanted = choose(known(lake))
        if not wanted:
            return choose.ended
        half = wanted[: len(wanted) // 2 + 1]
        keep(lake, NEW, [(one.task, one.attempt) for one in half], scores)


def test_what_is_much_better_passes_soon(ready: Lake) -> None:
    ended = until(ready, dict.fromkeys(TASKS, 1.0))
    assert ended.stopped == "decided"
    assert ended.verdict is not None
    assert ended.verdict.outcome == "PASS"
    assert ended.look < ended.looks
    assert len(known(ready)) < 60 * 4
    # The same verdict on this suite as the gate gives later; the other one is missing.
    verdict = judge(ready.database, TENANT, "production", "new")
    assert verdict.outcome == "ERROR"
    set_policy(ready.database, ALONE)
    later = judge(ready.database, TENANT, "production", "new")
    assert later.document["requirements"] == ended.verdict.document["requirements"]
    assert later.outcome == "PASS"


def test_where_nothing_can_be_shown_it_ends(ready: Lake) -> None:
    """The models differ by task as much as can be."""
    ended = until(ready, {task: float(at // 2 % 2) for at, task in enumerate(TASKS)})
    assert ended.stopped in {"hopeless", "all looks taken"}
    assert ended.verdict is not None
    assert ended.verdict.outcome == "INCONCLUSIVE"
    assert "more tasks may" in ended.text or "all planned attempts" in ended.text


def test_attempts_beyond_the_plan_change_nothing(ready: Lake) -> None:
    ended = until(ready, dict.fromkeys(TASKS, 1.0))
    keep(ready, NEW, [(task, 50) for task in TASKS], dict.fromkeys(TASKS, 0.0))
    evidence = channel_evidence(ready.database, TENANT, "production", "new", full=False)
    assert evidence.policy is not None
    assert ended.verdict is not None
    again = UntilDecided(ready.database, NEW, "production")
    assert again(known(ready)) == []
    assert again.ended.verdict is not None
    assert again.ended.verdict.document["requirements"] == (ended.verdict.document["requirements"])
    assert decide(evidence).outcome == "ERROR"  # for the other suite


def test_what_cannot_be_decided_is_refused(ready: Lake, lake: Lake) -> None:
    database = lake.database
    UntilDecided(database, NEW, "production", most=4)
    with pytest.raises(InvalidInput, match="allows 4 attempts per task, not 8"):
        UntilDecided(database, NEW, "production", most=8)
    with pytest.raises(InvalidInput, match="has no policy"):
        UntilDecided(database, NEW, "canary")
    other = AttemptScope(TENANT, "other", "v1", "new")
    with pytest.raises(InvalidInput, match="the gate counts version None"):
        UntilDecided(database, other, "production")
    add_suite(database, TENANT, SuiteVersion("other", "v1", (SuiteTask("t"),)))
    with pytest.raises(InvalidInput, match="has no results there"):
        UntilDecided(database, other, "production")
    with pytest.raises(InvalidInput, match="requires nothing on third"):
        UntilDecided(database, AttemptScope(TENANT, "third", "v1", "new"), "production")
