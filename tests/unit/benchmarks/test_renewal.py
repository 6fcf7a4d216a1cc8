"""Which tasks tell checkpoints apart no more, and which are the same in two versions of a suite."""

from pathlib import Path

import pytest

from penstock.registry.checkpoints.suites import SettledTask, SuiteTask, SuiteVersion, settled
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.suite_factory import make_suite


@pytest.mark.parametrize(
    ("newest_first", "found"),
    [
        ([[1.0] * 5] * 3, SettledTask("t", True, 3, 15)),
        ([[0.0] * 7, [0.0], [0.0] * 9], SettledTask("t", False, 3, 17)),
        ([[1.0]] * 20, SettledTask("t", True, 14, 14)),  # as many as the attempts take
        ([[1.0] * 5] * 3 + [[0.0]] * 9, SettledTask("t", True, 3, 15)),  # older ones hold nothing
        ([[1.0] * 5] * 2, None),  # too few checkpoints
        ([[1.0] * 4] * 3, None),  # too few attempts
        ([[1.0] * 5, [1.0] * 5, [1.0, 1.0, 0.0, 1.0, 1.0]], None),
        ([[0.5] * 9] * 3, None),  # neither passed nor failed
        ([], None),
    ],
)
def test_a_task_is_settled_by_its_newest_checkpoints(
    newest_first: list[list[float]], found: SettledTask | None
) -> None:
    assert settled("t", newest_first) == found


def _version(folder: Path, **files: dict[str, str]) -> SuiteVersion:
    suite = read_suite(make_suite(folder, files))
    tasks = tuple(SuiteTask(task.name, task.tags, task.digest) for task in suite.tasks)
    return SuiteVersion(suite.name, suite.version, tasks)


def test_two_versions_share_the_tasks_that_are_the_same(tmp_path: Path) -> None:
    old = _version(tmp_path / "a", one={}, two={}, gone={})
    new = _version(tmp_path / "b", one={}, two={"tree/more.txt": "1"}, three={})
    assert old.version != new.version
    assert old.shares(new) == new.shares(old) == {"one"}
    assert old.shares(old) == {"one", "two", "gone"}
    imported = SuiteVersion("core", "v1", (SuiteTask("one"),))
    assert imported.shares(SuiteVersion("core", "v2", (SuiteTask("one"),))) == set()
