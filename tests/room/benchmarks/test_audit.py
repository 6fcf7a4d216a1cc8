"""Audits of recorded attempts: a suspect one is missing until a person clears it."""

import json
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import (
    Attempt,
    AttemptAudit,
    attempts_of,
    audit_in,
    clear_attempt,
    record_attempts,
)
from penstock.registry.checkpoints.checkpoint import AttemptConflict
from penstock.registry.checkpoints.integrity import read_checked, restore
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.audit.audit import attempt_session, audit_recorded
from tests.support.benchmarks.agent_runs import CHEATING, HONEST
from tests.support.benchmarks.import_folders import harbor_job, harbor_trial
from tests.support.benchmarks.transcripts import claude_code, messages, trajectory
from tests.support.commands import penstock
from tests.support.lakes import HandLake, make_event
from tests.support.result_registry import TENANT, Registry
from tests.support.suite_factory import SOLVE, make_suite

SCOPE = AttemptScope(TENANT, "core", "imported", "ckpt-1")


def _job(folder: Path) -> Path:
    for name, run in (("cheats", CHEATING[5]), ("works", HONEST[0])):
        trial = harbor_trial(folder, f"{name}__1", 1).parent
        (trial / "agent").mkdir()
        trajectory(trial / "agent", run.request, run.acts)
    harbor_trial(folder, "silent__1", 1)
    harbor_job(folder, 3)
    return folder


def test_a_suspect_trial_is_missing_until_a_person_clears_it(
    registry: Registry, tmp_path: Path
) -> None:
    registry.take(_job(tmp_path / "job"))
    kept = registry.kept()
    assert (kept["works", 0], kept["silent", 0]) == (1.0, 1.0)
    assert str(kept["cheats", 0]).startswith("suspect of network: step 1: curl -sL https://github")
    assert registry.take(tmp_path / "job").new == 0  # the score does not come back
    assert registry.kept() == kept
    rmtree(tmp_path / "job" / "cheats__1" / "agent")
    with pytest.raises(AttemptConflict):  # nor without its transcript
        registry.take(tmp_path / "job")

    database = registry.database
    with pytest.raises(InvalidInput, match="no audit suspects it"):
        clear_attempt(database, SCOPE, ("works", 0), "ada", "read it")
    clear_attempt(database, SCOPE, ("cheats", 0), "ada", "the page was part of the task")
    assert registry.kept()["cheats", 0] == 1.0
    result = next(each.result for each in attempts_of(database, SCOPE) if each.result.audit)
    assert (audit_in(result) or AttemptAudit(0)).cleared == "ada: the page was part of the task"


def test_all_trials_of_an_import_are_looked_at(registry: Registry, tmp_path: Path) -> None:
    """Twelve cheat and fifty are honest. What only lines of the check show, no import tells."""
    runs = [*CHEATING, *HONEST]
    for number, run in enumerate(runs):
        trial = harbor_trial(tmp_path / "job", f"task-{number}__1", 1).parent
        (trial / "agent").mkdir()
        trajectory(trial / "agent", run.request, run.acts)
    harbor_job(tmp_path / "job", len(runs))
    registry.take(tmp_path / "job")
    kept = registry.kept()
    suspect = {run.name for n, run in enumerate(runs) if "suspect" in str(kept[f"task-{n}", 0])}
    hidden = {"the check's test in the tree"}
    assert suspect == {run.name for run in CHEATING} - hidden


def test_an_audit_is_evidence_that_nobody_edits(registry: Registry, tmp_path: Path) -> None:
    registry.take(_job(tmp_path / "job"))
    with registry.database.write() as connection:
        assert not read_checked(connection, SCOPE).alterations
        connection.exec_driver_sql(
            "update benchmark_attempt set status = 'scored', score = 1, error = null"
            " where task = 'cheats'"
        )
        assert "attempt 0 at cheats" in read_checked(connection, SCOPE).alterations[0]
        restore(connection, SCOPE)
        assert not read_checked(connection, SCOPE).alterations
    assert str(registry.kept()["cheats", 0]).startswith("suspect of network")


def test_the_messages_of_samples_are_looked_at(registry: Registry, tmp_path: Path) -> None:
    samples = [
        {"id": name, "epoch": 1, "scores": {"match": {"value": "C"}}, "messages": said}
        for name, said in (
            ("cheats", messages(CHEATING[0].request, CHEATING[0].acts)),
            ("works", messages(HONEST[1].request, HONEST[1].acts)),
        )
    ]
    spec = {"task": "t", "model": "own/model", "dataset": {"samples": 2}, "config": {"epochs": 1}}
    log = {"version": 2, "status": "success", "eval": spec, "samples": samples}
    (tmp_path / "log.json").write_text(json.dumps(log))
    registry.take(tmp_path / "log.json")
    assert registry.kept()["works", 0] == 1.0
    assert str(registry.kept()["cheats", 0]).startswith("suspect of history")


def test_a_session_that_came_later_is_found_by_the_attempts_id(lake: Lake) -> None:
    scope = AttemptScope(TENANT, "core", "v1", "new")
    attempts = [Attempt(task=task, attempt=0, score=1.0) for task in ("cheats", "works", "silent")]
    with lake.database.write() as connection:
        record_attempts(connection, scope, "run-1", attempts)
    for task, command in (("cheats", "git stash pop"), ("works", "git status")):
        call = {"id": "c1", "name": "bash", "arguments": {"command": command}}
        payload = {"call_id": "m1", "model": "own", "tool_calls": [call]}
        session = attempt_session(scope, task, 0)
        asked, told = make_event(session, 0), make_event(session, 1, "model_call", payload=payload)
        HandLake(lake).store([asked, told])
    report = audit_recorded(lake, scope)
    assert (report.attempts, report.audited, report.suspect) == (3, 2, 1)
    with lake.database.read() as connection:
        assert not read_checked(connection, scope).alterations
    errors = {each.result.task: each.result.error for each in attempts_of(lake.database, scope)}
    assert errors == {
        "cheats": "suspect of history: step 1: git stash pop", "silent": None, "works": None,
    }  # fmt: skip
    clear_attempt(lake.database, scope, ("cheats", 0), "ada", "its own stash")
    assert audit_recorded(lake, scope).suspect == 0


def test_an_agent_leaves_its_transcript(
    isolation: None, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run keeps it; the command audits it again, and a person clears it."""
    monkeypatch.setenv("PENSTOCK_DATA", str(lake.settings.data))
    bench = partial(penstock, "bench")
    suite = str(make_suite(tmp_path / "suite"))
    session = claude_code(tmp_path, CHEATING[0].request, CHEATING[0].acts)
    agent = f"{SOLVE}; cp {session} $(dirname $PENSTOCK_REPORT)/session.jsonl;"
    agent += ' echo \'{"transcript": "session.jsonl"}\' > $PENSTOCK_REPORT'
    made = bench("run", suite, "--checkpoint", "new", "--agent", agent, "--json")
    groups: Any = json.loads(made.stdout)["summary"]["error_groups"]
    assert [group["error"] for group in groups] == ["suspect of history"]

    audited = bench("audit", "mini", "--checkpoint", "new")
    assert audited.returncode == 1
    assert "git show 9f3c2ab" in audited.stdout
    assert "1 of 1 attempts have a transcript, 1 are suspect" in audited.stderr
    clear = ("--clear", "task-0:0", "--reason", "the task is about the history")
    cleared = bench("audit", "mini", "--checkpoint", "new", *clear)
    assert cleared.returncode == 0, cleared.stderr
    version = json.loads(made.stdout)["suite_version"]
    scope = AttemptScope(TENANT, "mini", version, "new")
    assert attempts_of(lake.database, scope)[0].result.score == 1
