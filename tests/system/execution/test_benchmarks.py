"""A suite has the same table on every executor."""

from dataclasses import replace
from pathlib import Path

from penstock.checkpoints.attempts import Attempt, attempts_of
from penstock.execution import Executor
from penstock.execution.calls import InlineExecutor
from penstock_jobs.benchmarks.run import RunOptions, run_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.lakes import hand_lake
from tests.support.suite_factory import make_suite, need_isolation

#: Solves what the seed says, so that results differ by attempt and are the same again.
BY_SEED = "expr $PENSTOCK_SEED % 2 > /dev/null && echo 42 > answer; true"


def test_a_suite_has_the_same_table_on_every_executor(tmp_path: Path, executor: Executor) -> None:
    need_isolation()
    suite = read_suite(make_suite(tmp_path / "suite", 3))
    tables: list[list[Attempt]] = []
    for name, runs_on in (("here", InlineExecutor()), ("there", executor)):
        with hand_lake(tmp_path / name) as hand:
            options = RunOptions(agent=BY_SEED, attempts=2)
            report = run_suite(hand.lake, runs_on, suite, "any", options, tenant="default")
            assert report.made == 6
            kept = attempts_of(hand.lake.database, report.scope)
        tables.append([replace(one.result, latency_s=None) for one in kept])
    assert tables[0] == tables[1]
    assert {one.score for one in tables[0]} == {0.0, 1.0}
