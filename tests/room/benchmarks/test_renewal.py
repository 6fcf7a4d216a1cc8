"""A renewed suite: scores across its versions, and the tasks that its next version leaves out."""

from collections.abc import Mapping

import pytest

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import (
    SettledTask,
    SuiteTask,
    SuiteVersion,
    add_suite,
    settled_tasks,
)
from penstock_jobs.benchmarks.summary import compare_checkpoints
from tests.support.result_registry import TENANT, Registry


def _suite(database: Database, version: str, tasks: Mapping[str, str]) -> None:
    listed = tuple(SuiteTask(name, (), digest) for name, digest in tasks.items())
    add_suite(database, TENANT, SuiteVersion("core", version, listed))


def _score(database: Database, name: str, version: str, scores: Mapping[str, list[float]]) -> None:
    attempts = [
        Attempt(task=task, attempt=number, score=score)
        for task, of_task in scores.items()
        for number, score in enumerate(of_task)
    ]
    with database.write() as connection:
        record_attempts(connection, AttemptScope(TENANT, "core", version, name), name, attempts)


def test_scores_across_versions_are_compared_at_the_same_tasks(registry: Registry) -> None:
    database = registry.database
    _suite(database, "v1", {"same": "1", "also": "2", "changed": "3", "gone": "4"})
    _score(database, "one", "v1", {"same": [0], "also": [1], "changed": [1], "gone": [1]})
    _suite(database, "v2", {"same": "1", "also": "2", "changed": "5", "new": "6"})
    _score(database, "two", "v2", {"same": [1], "also": [1], "changed": [0], "new": [0]})
    found = compare_checkpoints(database, TENANT, "core", "one", "two")
    assert (found.before_version, found.version) == ("v1", "v2")
    assert [pair.task for pair in found.tasks] == ["also", "same"]
    assert (found.difference, found.left_out) == (0.5, ())
    _score(database, "two", "v1", {"gone": [0]})  # one version of both goes before
    found = compare_checkpoints(database, TENANT, "core", "one", "two")
    assert (found.before_version, found.version, found.difference) == (None, "v1", None)


def test_versions_without_a_same_task_are_not_compared(registry: Registry) -> None:
    for name, digest in (("one", "1"), ("two", "2")):
        _suite(registry.database, f"at-{name}", {"task": digest})
        _score(registry.database, name, f"at-{name}", {"task": [1]})
    with pytest.raises(InvalidInput, match="common version or task"):
        compare_checkpoints(registry.database, TENANT, "core", "one", "two")


def test_attempts_at_the_same_task_in_older_versions_count(registry: Registry) -> None:
    database = registry.database
    _suite(database, "v1", {"easy": "1", "mended": "2"})
    for name in ("one", "two"):
        _score(database, name, "v1", {"easy": [1] * 5, "mended": [0] * 5})
    _suite(database, "v2", {"easy": "1", "mended": "3", "open": "4"})
    assert settled_tasks(database, TENANT, "core") == []
    _score(database, "three", "v2", {"easy": [1] * 5, "mended": [0] * 5, "open": [1, 0] * 9})
    assert settled_tasks(database, TENANT, "core") == [SettledTask("easy", True, 3, 15)]
