"""A canary's whole way with the real gate: started, stepped, judged by its looks, promoted."""

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest

from penstock.backends.database.engine import Database
from penstock.registry.channels.promotion import Judge, gate_judge, judge
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from penstock.registry.gate.verdict import GateRefused
from penstock_jobs.loop.canary import watch
from penstock_jobs.loop.canary.watch import WatchRound
from tests.support.canary_traffic import (
    CHANNEL,
    HOUR,
    MINUTE,
    NEW,
    OLD,
    PLEASED,
    STEPS,
    Plan,
    reward,
    sessions,
    state,
    store,
)
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy
from tests.support.lakes import HandLake

POLICY = f"""
[[require]]
suite = "core"
margin = 0.2
{PLEASED}
{STEPS}
auto_step = true
"""


def score(database: Database) -> None:
    """Both are equally good at the suite."""
    tasks = [f"t{number:02}" for number in range(40)]
    add_suite(database, TENANT, SuiteVersion("core", "1", tuple(map(SuiteTask, tasks))))
    results = [
        Attempt(task=task, attempt=attempt, score=float((at + attempt) % 2))
        for at, task in enumerate(tasks)
        for attempt in range(2)
    ]
    with database.write() as connection:
        for name in (OLD, NEW):
            record_attempts(connection, AttemptScope(TENANT, "core", "1", name), "run-1", results)


def at(moment_us: int) -> Callable[[Database, str, float | None], Judge]:
    """The gate, at that time."""

    def judge_of(database: Database, tenant: str, share: float | None) -> Judge:
        return partial(judge, database, tenant, full=share is None, at_us=moment_us)

    return judge_of


def test_all_traffic_takes_a_look_that_passed(lake: HandLake) -> None:
    database = lake.lake.database
    add(database, OLD, NEW)
    score(database)
    promote(database, OLD)
    set_policy(database, POLICY)
    with pytest.raises(GateRefused, match="INCONCLUSIVE"):
        promote(database, NEW, gate_judge(database, TENANT))
    began = promote(database, NEW, gate_judge(database, TENANT, 0.5), share=0.5).at
    with pytest.raises(GateRefused, match="INCONCLUSIVE"):
        promote(database, NEW, gate_judge(database, TENANT))
    store(lake, sessions(Plan(from_us=began + 2 * MINUTE)))
    reward(lake, began)

    def watched(at_us: int) -> WatchRound:
        with patch.object(watch, "gate_judge", at(at_us + MINUTE)):
            return watch.watch_once(lake.lake, TENANT, CHANNEL, at_us)

    assert watched(began + 2 * HOUR).action == "looked"
    with pytest.raises(GateRefused, match="INCONCLUSIVE"):
        promote(database, NEW, at(began + 2 * HOUR)(database, TENANT, None))
    reward(lake, began + 3 * HOUR)
    found = watched(began + 3 * HOUR)
    assert (found.action, state(lake).checkpoint) == ("promoted", NEW)
